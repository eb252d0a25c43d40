"""How a value differs from another, for people (pure)."""

from difflib import unified_diff
from typing import Final

from bridge.deadletters.mending import json_text
from bridge.errors import NoJson

#: Most lines of a difference, and most characters of one of them.
LINES: Final = 200
WIDTH: Final = 500


def difference(before: bytes | None, after: bytes | None) -> str:
    """A unified diff: of JSON a member a line, of other texts their lines, else of their sizes.

    It is cut at `LINES`, and says so.
    """
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        old, new = [_size(before)], [_size(after)]
    found = [line[:WIDTH] for line in unified_diff(old, new, "before", "after", lineterm="")]
    more = len(found) - LINES
    return "\n".join([*found[:LINES], f"… {more} more lines"] if more > 0 else found)


def changes(found: str) -> int:
    """How many places a difference changes: of lines that follow each other, as many as there are pairs of them."""
    count = old = new = 0
    for line in [*found.splitlines()[2:], ""]:
        if line[:1] in ("-", "+"):
            old, new = old + (line[0] == "-"), new + (line[0] == "+")
        else:
            count, old, new = count + max(old, new), 0, 0
    return count


def _lines(value: bytes | None) -> list[str] | None:
    """A value as lines of text; `None`: it is no text."""
    if value is None:
        return []
    try:
        return json_text.lines(json_text.read(value))
    except (NoJson, RecursionError):
        pass
    try:
        return value.decode().splitlines()
    except UnicodeDecodeError:
        return None


def _size(value: bytes | None) -> str:
    return "(a tombstone)" if value is None else f"({len(value):,} bytes)"
