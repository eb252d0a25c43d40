"""Jinja filters and functions for numbers, times, durations and foreign text (pure)."""

import re
import unicodedata
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Final

from markupsafe import Markup, escape

from bridge.deadletters.model.letter_view import LetterLine

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def format_duration(ms: int) -> str:
    """In two units at most: `3 min 41 s`, `28 ms`.

    Parameters:
        ms: milliseconds.
    """
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    seconds = ms // 1_000
    at = next(index for index, (size, _) in enumerate(_UNITS) if seconds >= size)
    found = []
    for size, unit in _UNITS[at : at + 2]:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {unit}")
    return " ".join(found)


#: In the place of what is not there.
DASH: Final = Markup("&ndash;")
_FOREIGN_AT_MOST: Final = 2_000
#: Joiners (U+200C, U+200D) stay where they join what is not ASCII: emoji, and the scripts of India and Persia. Half a
#: surrogate pair is a byte that was no UTF-8, or half a character, and no answer can be encoded with it.
_UNSEEN: Final = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<![^\u0000-\u007f])[\u200c\u200d]|[\u200c\u200d](?![^\u0000-\u007f])"
)


def number(count: int | None) -> Markup:
    """`21,480`; 0 in grey, a dash where there is none."""
    if count is None:
        return DASH
    return Markup('<span class="zero">0</span>') if count == 0 else Markup(f"{count:,}")


def large(count: int) -> Markup:
    """`21,480`, and from ten million on `153.1 M`: no column is as wide as that."""
    for size, unit in ((10_000_000_000_000, "T"), (10_000_000_000, "G"), (10_000_000, "M")):
        if count >= size:
            return Markup(f"{count / size * 10:,.1f} {unit}")
    return number(count)


def a_second(minute: int) -> Markup:
    """How many a second, of so many in a minute: `0.3`, `142`."""
    rate = minute / 60
    return number(0) if not minute else Markup(f"{rate:,.2g}" if rate < 10 else f"{rate:,.0f}")


def foreign(text: str | None, most: int = _FOREIGN_AT_MOST, marks: Collection[str] = ()) -> Markup:
    """What others have written: escaped, apart from what stands around it, and nothing in it unseen.

    Parameters:
        marks: what is to be found in it at a glance.
    """
    text = text or ""
    # Put together without Markup.format, which takes twenty times as long: a value may have 65,000 lines.
    shown = Markup(f"<bdi>{''.join(_marked(text[:most], marks))}</bdi>")
    if len(text) <= most:
        return shown
    return shown + Markup('<span class="muted"> … {} more characters</span>').format(f"{len(text) - most:,}")


def ending(name: str, most: int) -> Markup:
    """A dotted name by its end, which tells it from others: `…orders.handlers.charge`; all of it where it is short."""
    if len(name) <= most:
        return foreign(name)
    head, dot, tail = name[-most:].partition(".")
    return Markup('<span title="{}">…{}</span>').format(attribute(name), foreign(tail if dot else head))


def octets(data: bytes | None, most: int = _FOREIGN_AT_MOST) -> Markup:
    """A key, or a header's value: its text, or its bytes in hexadecimal where it is none."""
    if data is None:
        return DASH
    some = data[: 4 * most]
    try:
        # What is cut may end within a character.
        return foreign(some.decode("utf-8", "strict" if len(some) == len(data) else "ignore"), most)
    except UnicodeDecodeError:
        shown = Markup('<span class="mono">{}</span> <span class="tag">hex</span>').format(data[:most].hex(" "))
        more = Markup('<span class="muted"> … {} more bytes</span>').format(f"{len(data) - most:,}")
        return shown + more if len(data) > most else shown


def describe_error(letter: LetterLine) -> str:
    """What a letter failed of, in a line: `CardDeclined: do_not_honor`."""
    name = letter.error_class.rpartition(".")[2]
    return ": ".join(filter(None, (name, letter.error_message))) or "nobody says of what"


def attribute(text: str) -> Markup:
    """The same in an attribute, of which nothing is shown: whole, and what is unseen as a reference."""
    parts = _UNSEEN.split(text.encode("utf-8", "replace").decode())
    unseen = (Markup(f"&#{ord(found)};") for found in _UNSEEN.findall(text))
    return Markup("").join(
        each for pair in zip(map(Markup.escape, parts), [*unseen, Markup("")], strict=True) for each in pair
    )


def _marked(text: str, marks: Collection[str]) -> Iterator[Markup]:
    if not marks:
        yield from _seen(text)
        return
    # The longest first: of two that begin alike it is the one that is meant.
    wanted = re.compile("(" + "|".join(map(re.escape, sorted(marks, key=len, reverse=True))) + ")")
    for at, part in enumerate(wanted.split(text)):
        seen = Markup("").join(_seen(part))
        yield Markup("<mark>{}</mark>").format(seen) if at % 2 else seen


def commands(sentence: str) -> Markup:
    """A sentence with foreign words in it, its commands as such: ``start `bridge run` ``."""
    parts = sentence.split("`")
    # An odd mark is no command's beginning.
    if len(parts) % 2 == 0:
        return foreign(sentence)
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(foreign(part)) if place % 2 else foreign(part) for place, part in enumerate(parts)
    )


def _seen(text: str) -> list[Markup]:
    found: list[Markup] = []
    at = 0
    for match in _UNSEEN.finditer(text):
        found += [Markup.escape(text[at : match.start()]), _named(match.group())]
        at = match.end()
    return [*found, Markup.escape(text[at:])]


@cache
def _named(character: str) -> Markup:
    if "\udc80" <= character <= "\udcff":
        return Markup('<i class="esc" title="a byte that is no UTF-8">{:02x}</i>').format(ord(character) - 0xDC00)
    name = unicodedata.name(character, "control character").lower()
    return Markup('<i class="esc" title="{}">U+{:04X}</i>').format(name, ord(character))


def format_time(at: int | None, now: int | None = None, *, ms: bool = False) -> Markup:
    """A time in UTC, with the date where it is not today's: `02:47:01`.

    Parameters:
        at, now: ms since the epoch.
        ms: whether it is shown to the millisecond.
    """
    if at is None:
        return DASH
    try:
        moment = datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        # Producers write what they like as a record's time.
        return Markup('<span title="no time that a calendar has">{} ms</span>').format(at)
    today = now is not None and datetime.fromtimestamp(now / 1000, UTC).date() == moment.date()
    words = f"{moment:%H:%M:%S}" if today else f"{moment:%d %b %Y %H:%M:%S}"
    words += f".{at % 1000:03}" if ms else ""
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, f"{moment:%Y-%m-%d %H:%M:%S} UTC", words)


def format_iso_time(iso: str, now: int | None = None) -> Markup:
    """A time that somebody has written by ISO 8601, as `clock` shows it; as it is where it is none."""
    try:
        return format_time(int(datetime.fromisoformat(iso).timestamp() * 1000), now)
    except ValueError:
        return foreign(iso, 40)


def format_age(at: int, now: int) -> str:
    """How long it is since, in its largest unit: `2 min ago`.

    Parameters:
        at, now: ms since the epoch.
    """
    seconds = max(0, (now - at) // 1000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def terminal(command: Markup, program: str) -> Markup:
    """A command of ours as it is typed where this console runs: by the program that reaches its servers."""
    rest = command.removeprefix("<bdi>")
    return command[: len(command) - len(rest)] + escape(program) + rest.removeprefix("bridge")
