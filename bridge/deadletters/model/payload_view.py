"""A value as a page shows it, one part at a time: indented, raw, or in hexadecimal (pure).

Indenting moves the parts of a JSON text and changes none of them, except escapes of readable characters.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from bridge.deadletters.model.json_fold import JsonNode, fold_lines

#: Most bytes of a value that are read, and most levels that are indented: deeper ones stay on their line.
READ: Final = 1_000_000
DEEPEST: Final = 64
#: Characters of a part of a text, and lines of an indented one; bytes of a part in hexadecimal, and of a line of it.
PART: Final = 65_536
LINES: Final = 2_000
HEX_PART: Final = 4_096
HEX_LINE: Final = 16

#: Most characters of a text that is searched, and of what it is searched for.
SEARCHED: Final = 2_000_000
MAX_WORDS: Final = 200

#: A token of a JSON text: a string (the last may be cut off), a bracket, a comma, a colon, or another run.
_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{},:]|[^][{},:"\s]+', re.DOTALL)
_STEP: Final = "  "
#: An escape of a string: a surrogate pair, one character, or another escape, which stays.
_ESCAPE: Final = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|.)", re.DOTALL | re.IGNORECASE
)
#: A quoted part of an error's message.
_QUOTED: Final = re.compile(r"'([^']{2,200})'|\"([^\"]{2,200})\"")


class PayloadMode(StrEnum):
    """A way to show a value."""

    PRETTY = "pretty"
    SENT = "sent"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class PayloadView:
    """A part of a value for a page.

    Attributes:
        kind: "JSON", "text", "bytes", "empty" or "a tombstone".
        ways: the modes in which it can be shown.
        way: the mode in which it is shown.
        lines: of the part, if it is text.
        nodes: the same lines as a tree, if it is indented.
        dump: of the part in hexadecimal, for each line: offset, bytes, and text.
        at: the begin of the part, in characters, or bytes of hexadecimal.
        next: the begin of the next part; `None`: this is the last.
        fault_at: the first byte that is no text, or no JSON if the value begins as JSON; `None`: no fault.
        unread: bytes at its end that are not read.
        found: what was searched for in all of it.
    """

    kind: str
    ways: Sequence[PayloadMode] = ()
    way: PayloadMode | None = None
    lines: Sequence[str] = ()
    nodes: Sequence[JsonNode] = ()
    dump: Sequence[tuple[int, str, str]] = ()
    at: int = 0
    next: int | None = None
    fault_at: int | None = None
    unread: int = 0
    found: "ValueSearch | None" = None


class ValueSearch(NamedTuple):
    """The places of a text in a value, in either case of letters.

    Attributes:
        number: of places.
        next: the begin of the first part behind this one that has one; `None`: none has.
        is_complete: whether all of what is read was searched.
    """

    number: int
    next: int | None
    is_complete: bool


def view_payload(
    value: bytes | None, way: PayloadMode | None = None, at: int | None = None, search: str = ""
) -> PayloadView:
    """Return a part of a value.

    Parameters:
        way: the wished mode; another one is used if the value cannot be shown so.
        at: the begin of the part; by default the begin of the value, in hexadecimal just before the fault; if
            something is searched for, the first part that has it.
        search: a text to find; hexadecimal is not searched.
    """
    if not value:
        return PayloadView("a tombstone" if value is None else "empty")
    some = value[:READ]
    text, fault = _read_text(some, cut=len(value) > READ)
    is_json = False
    if text is not None:
        is_json, fault = _check_json(text, cut=len(value) > READ)
    ways = (PayloadMode.PRETTY, PayloadMode.SENT, PayloadMode.HEX) if is_json else (PayloadMode.SENT, PayloadMode.HEX)
    kind = "JSON" if is_json else "bytes" if text is None else "text"
    way = way if way in ways else PayloadMode.HEX if text is None else ways[0]
    found = PayloadView(kind, ways, way, fault_at=fault, unread=len(value) - len(some))
    if way is PayloadMode.HEX:
        begins = _find_fault_start(fault) if at is None else at
        dump, following = _dump_bytes(some, begins)
        return replace(found, dump=dump, at=begins, next=following)
    whole = some.decode("utf-8", "surrogateescape") if text is None else text
    indented = way is PayloadMode.PRETTY
    part, sought = _view_text(whole, at, search[:MAX_WORDS], indented=indented)
    nodes = fold_lines(part.before, part.lines, goes_on=part.ends_within) if indented else ()
    return replace(found, lines=part.lines, nodes=nodes, at=len(part.before), next=part.following, found=sought)


def _view_text(whole: str, at: int | None, search: str, *, indented: bool) -> tuple["_TextPart", ValueSearch | None]:
    """Return a part of a text, and what was found in all of it."""

    def write() -> Iterator[str]:
        return _indent_json(whole) if indented else iter((whole,))

    most = LINES if indented else PART
    part = _cut_part(write(), at or 0, most)
    if not search:
        return part, None
    places, is_complete = _find_places(write(), search)
    if at is None and places and part.following is not None and places[0] >= part.following:
        part = _cut_part(write(), places[0], most)
    later = None if (behind := part.following) is None else next((place for place in places if place >= behind), None)
    return part, ValueSearch(len(places), later, is_complete)


def find_quoted_text(message: str) -> frozenset[str]:
    """Return the texts that an error's message quotes, to highlight them in the value."""
    return frozenset(one or other for one, other in _QUOTED.findall(message[:4_000]))


def _read_text(some: bytes, *, cut: bool) -> tuple[str | None, int | None]:
    """Return the text of bytes, or the offset of the first byte that is no text."""
    try:
        return some.decode(), None
    except UnicodeDecodeError as error:
        if cut and error.start >= len(some) - 3:
            return some[: error.start].decode(), None
        return None, error.start


def _check_json(text: str, *, cut: bool) -> tuple[bool, int | None]:
    """Return whether a text is JSON, and the byte at which an object or a list becomes invalid."""
    if cut:
        return text.lstrip()[:1] in ("{", "["), None
    try:
        # Numbers are not converted: they may have a million digits.
        json.loads(text, parse_int=str, parse_float=str)
        return True, None
    except json.JSONDecodeError as error:
        meant = text.lstrip()[:1] in ("{", "[")
        return False, len(text[: error.pos].encode()) if meant else None
    except RecursionError:
        return True, None


def _find_fault_start(fault: int | None) -> int:
    """Return the begin of the hexadecimal part with a fault and some bytes before it."""
    return 0 if fault is None else max(0, fault // HEX_LINE * HEX_LINE - 4 * HEX_LINE)


def _dump_bytes(some: bytes, begins: int) -> tuple[list[tuple[int, str, str]], int | None]:
    end = min(begins + HEX_PART, len(some))
    lines = []
    for at in range(begins, end, HEX_LINE):
        line = some[at : min(at + HEX_LINE, end)]
        lines.append((at, line.hex(" "), "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)))
    return lines, end if end < len(some) else None


class _TextPart(NamedTuple):
    """A part of a text.

    Attributes:
        before: the text before it.
        following: the begin of the next part; `None`: this is the last.
        ends_within: whether it ends within a line.
    """

    before: str
    lines: list[str]
    following: int | None
    ends_within: bool = False


#: Characters before a place in a line that is longer than a part.
_BEFORE_PLACE: Final = 200


def _find_places(pieces: Iterator[str], search: str) -> tuple[list[int], bool]:
    """Return where a part begins that shows a text, for each place of it, and whether all was searched."""
    text, begins = _join_pieces(pieces, SEARCHED), 0
    places: list[int] = []
    wanted = re.compile(re.escape(search), re.IGNORECASE)
    for line in text[:SEARCHED].split("\n"):
        for match in wanted.finditer(line):
            places.append(begins if len(line) < PART else begins + max(0, match.start() - _BEFORE_PLACE))
        begins += len(line) + 1
    return places, len(text) <= SEARCHED


def _join_pieces(pieces: Iterator[str], most: int) -> str:
    """Return the begin of a text: more characters than `most` if it has them, without computing the rest of it."""
    made: list[str] = []
    length = 0
    while length <= most and (some := "".join(islice(pieces, 1_000))):
        made.append(some)
        length += len(some)
    return "".join(made)


def _cut_part(pieces: Iterator[str], begins: int, most: int) -> _TextPart:
    """Return a part of a text.

    Parameters:
        most: lines of the part.
    """
    read = _join_pieces(pieces, begins + PART)
    before, text = read[:begins], read[begins:]
    end = len(text)
    if end > PART:
        # At the end of a line, if there is one.
        end = text.rfind("\n", PART // 2, PART) + 1 or PART
    lines = text[:end].split("\n", most)
    if len(lines) > most:
        end -= len(lines.pop())
    elif end < len(text) and text[end - 1] == "\n":
        lines.pop()
    if end == len(text):
        return _TextPart(before, lines, None)
    return _TextPart(before, lines, begins + end, text[end - 1] != "\n")


def _indent_json(text: str) -> Iterator[str]:
    """Yield a JSON text with a member a line, its tokens unchanged but for escapes of readable characters."""
    depth, before = 0, ""
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in ("}", "]"):
            depth -= 1
        if before and (line := _write_separator(before, piece, depth)):
            yield line
        yield _ESCAPE.sub(_decode_escape, piece) if "\\u" in piece else piece
        if piece in ("{", "["):
            depth += 1
        before = piece


def _decode_escape(escape: re.Match[str]) -> str:
    """Return the character that an escape stands for, or the escape where the text would not be JSON or be unseen."""
    high, low, single = escape.groups()
    if high is not None:
        character = chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    elif single is not None:
        character = chr(int(single, 16))
    else:
        return escape.group()
    return character if character.isprintable() and character not in '"\\' else escape.group()


def _write_separator(before: str, piece: str, depth: int) -> str:
    """Return the space between two tokens of a JSON text."""
    if before == ":":
        return " "
    opened, closes = before in ("{", "["), piece in ("}", "]")
    if (opened and closes) or not (opened or closes or before == ","):
        return ""
    inner = depth + 1 if closes else depth
    return ("\n" + _STEP * depth) if inner <= DEEPEST else (" " if before == "," else "")
