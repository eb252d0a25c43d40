"""Jinja filters and functions for numbers, times, durations and foreign text (pure)."""

import re
import unicodedata
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Final
from urllib.parse import quote

from markupsafe import Markup, escape

from bridge.console import shown_zone
from bridge.deadletters.model.letter_view import LetterLine

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def format_duration(ms: int) -> str:
    """Return a duration in at most two units: `3 min 41 s`, `28 ms`.

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


#: The sign for a missing value.
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
    """Return a count as `21,480`; 0 in grey, a dash for None."""
    if count is None:
        return DASH
    return Markup('<span class="zero">0</span>') if count == 0 else Markup(f"{count:,}")


def large(count: int) -> Markup:
    """Return a count as `21,480`, and from ten million on as `153.1 M`, to fit its column."""
    for size, unit in ((10_000_000_000_000, "T"), (10_000_000_000, "G"), (10_000_000, "M")):
        if count >= size:
            return Markup(f"{count / size * 10:,.1f} {unit}")
    return number(count)


def a_second(minute: int) -> Markup:
    """Return a count a minute as a rate a second: `0.3`, `142`."""
    rate = minute / 60
    return number(0) if not minute else Markup(f"{rate:,.2g}" if rate < 10 else f"{rate:,.0f}")


def foreign(text: str | None, most: int = _FOREIGN_AT_MOST, marks: Collection[str] = ()) -> Markup:
    """Return foreign text escaped and isolated, with its invisible characters shown.

    Parameters:
        marks: words to highlight.
    """
    text = text or ""
    # Put together without Markup.format, which takes twenty times as long: a value may have 65,000 lines.
    shown = Markup(f"<bdi>{''.join(_marked(text[:most], marks))}</bdi>")
    if len(text) <= most:
        return shown
    return shown + Markup('<span class="muted"> … {} more characters</span>').format(f"{len(text) - most:,}")


def seen(text: str) -> str:
    """Return foreign text escaped, with its invisible characters shown; the caller isolates it."""
    return "".join(_seen(text))


def ending(name: str, most: int) -> Markup:
    """Return the end of a long dotted name, which tells it from others: `…orders.handlers.charge`."""
    if len(name) <= most:
        return foreign(name)
    head, dot, tail = name[-most:].partition(".")
    return Markup('<span title="{}">…{}</span>').format(attribute(name), foreign(tail if dot else head))


def octets(data: bytes | None, most: int = _FOREIGN_AT_MOST) -> Markup:
    """Return a key or a header's value as text, or in hexadecimal if it is no UTF-8."""
    if data is None:
        return DASH
    some = data[: 4 * most]
    try:
        # The cut may fall within a character.
        return foreign(some.decode("utf-8", "strict" if len(some) == len(data) else "ignore"), most)
    except UnicodeDecodeError:
        shown = Markup('<span class="mono">{}</span> <span class="tag">hex</span>').format(data[:most].hex(" "))
        more = Markup('<span class="muted"> … {} more bytes</span>').format(f"{len(data) - most:,}")
        return shown + more if len(data) > most else shown


def copied(text: str | bytes) -> str:
    """Return text in ASCII for a button that copies it exactly; bytes that are no text in hexadecimal."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    try:
        data.decode()
    except UnicodeDecodeError:
        return quote(data.hex(" "))
    return quote(data)


def describe_error(letter: LetterLine) -> str:
    """Return the error of a letter in a line: `CardDeclined: do_not_honor`."""
    name = letter.error_class.rpartition(".")[2]
    return ": ".join(filter(None, (name, letter.error_message))) or "no error given"


def attribute(text: str) -> Markup:
    """Return text for an attribute: complete, with invisible characters as references."""
    parts = _UNSEEN.split(text.encode("utf-8", "replace").decode())
    unseen = (Markup(f"&#{ord(found)};") for found in _UNSEEN.findall(text))
    return Markup("").join(
        each for pair in zip(map(Markup.escape, parts), [*unseen, Markup("")], strict=True) for each in pair
    )


def _marked(text: str, marks: Collection[str]) -> Iterator[Markup]:
    if not marks:
        yield from _seen(text)
        return
    # The longest first, so that a mark that begins with another one wins.
    wanted = re.compile("(" + "|".join(map(re.escape, sorted(marks, key=len, reverse=True))) + ")")
    for at, part in enumerate(wanted.split(text)):
        seen = Markup("").join(_seen(part))
        yield Markup("<mark>{}</mark>").format(seen) if at % 2 else seen


def commands(sentence: str) -> Markup:
    """Return a sentence of foreign words with its commands marked up: ``start `bridge run` ``."""
    parts = sentence.split("`")
    # An unpaired backtick begins no command.
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
    """Return a time in the zone that the page shows, with the date unless it is today: `02:47:01`.

    Parameters:
        at, now: ms since the epoch.
        ms: whether to show milliseconds.
    """
    if at is None:
        return DASH
    try:
        utc = datetime.fromtimestamp(at / 1000, UTC)
        moment = utc.astimezone(zone := shown_zone.get_zone())
    except (OverflowError, ValueError, OSError):
        # Producers may write any number as a record's time.
        return Markup('<span title="no time that a calendar has">{} ms</span>').format(at)
    today = now is not None and datetime.fromtimestamp(now / 1000, zone).date() == moment.date()
    words = f"{moment:%H:%M:%S}" if today else f"{moment:%d %b %Y %H:%M:%S}"
    words += f".{at % 1000:03}" if ms else ""
    iso = utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, f"{utc:%Y-%m-%d %H:%M:%S} UTC", words)


def format_iso_time(iso: str, now: int | None = None) -> Markup:
    """Return an ISO 8601 time as `clock` shows it; other text unchanged."""
    try:
        return format_time(int(datetime.fromisoformat(iso).timestamp() * 1000), now)
    except ValueError:
        return foreign(iso, 40)


def format_age(at: int, now: int) -> str:
    """Return the time since a moment in its largest unit: `2 min ago`.

    Parameters:
        at, now: ms since the epoch.
    """
    seconds = max(0, (now - at) // 1000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def terminal(command: Markup, program: str) -> Markup:
    """Return a bridge command as it is typed where this console runs, by the program that reaches its servers."""
    rest = command.removeprefix("<bdi>")
    return command[: len(command) - len(rest)] + escape(program) + rest.removeprefix("bridge")
