"""How numbers, times and what others have written look in a page (pure)."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

#: Joiners stay where they join (emoji, Indic scripts).
_JOINERS: Final = "\u200c\u200d"
_BREAKS: Final = "\n\t"
#: In the place of what is not there.
NONE: Final = Markup("&ndash;")
_FOREIGN_AT_MOST: Final = 2_000
_UNSEEN: Final = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def number(count: int | None) -> Markup:
    """`21,480`; 0 in grey, a dash where there is none."""
    if count is None:
        return NONE
    return Markup('<span class="zero">0</span>') if count == 0 else Markup(f"{count:,}")


def foreign(text: str | None, most: int = _FOREIGN_AT_MOST) -> Markup:
    """What others have written: escaped, apart from what stands around it, and nothing in it unseen."""
    text = text or ""
    shown = Markup("").join(_seen(text[:most]))
    cut = Markup('<span class="muted"> … {} more characters</span>').format(f"{len(text) - most:,}")
    return Markup("<bdi>{}</bdi>{}").format(shown, cut if len(text) > most else "")


def _seen(text: str) -> list[Markup]:
    found: list[Markup] = []
    at = 0
    for match in _UNSEEN.finditer(text):
        found += [Markup.escape(text[at : match.start()]), _named(match.group())]
        at = match.end()
    return [*found, Markup.escape(text[at:])]


def _named(character: str) -> Markup:
    name = unicodedata.name(character, "control character").lower()
    return Markup('<span class="ctl" title="{}">U+{:04X}</span>').format(name, ord(character))


def clock(at: int | None, now: int | None = None) -> Markup:
    """A time in UTC, with the date where it is not today's: `02:47:01`.

    Parameters:
        at, now: ms since the epoch.
    """
    if at is None:
        return NONE
    moment = datetime.fromtimestamp(at / 1000, UTC)
    today = now is not None and datetime.fromtimestamp(now / 1000, UTC).date() == moment.date()
    words = f"{moment:%H:%M:%S}" if today else f"{moment:%d %b %Y %H:%M:%S}"
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, f"{moment:%Y-%m-%d %H:%M:%S} UTC", words)


def ago(at: int, now: int) -> str:
    """How long it is since, in its largest unit: `2 min ago`.

    Parameters:
        at, now: ms since the epoch.
    """
    seconds = max(0, (now - at) // 1000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
