"""A value for a person's eyes: JSON a member a line, other text as it is, all else in hexadecimal (pure)."""

from typing import Final, NamedTuple

from bridge.deadletters.mending import json_text
from bridge.errors import NoJson

#: Bytes that are shown in hexadecimal, and lines of all else; `show --value` gives all of it.
DUMPED: Final = 512
LINES: Final = 200


class Payload(NamedTuple):
    """What a value is, and how it looks.

    Attributes:
        kind: "JSON", "text", "bytes", "empty" or "a tombstone".
        lines: of which `more` are left out.
    """

    kind: str
    lines: list[str]
    more: int = 0


def payload(value: bytes | None) -> Payload:
    """A value for a person's eyes."""
    if value is None:
        return Payload("a tombstone", [])
    if not value:
        return Payload("empty", [])
    try:
        return _cut("JSON", json_text.lines(json_text.read(value)))
    except (NoJson, RecursionError):
        pass
    try:
        return _cut("text", value.decode().splitlines())
    except UnicodeDecodeError:
        return Payload("bytes", _dump(value[:DUMPED]), max(0, len(value) - DUMPED))


def _cut(kind: str, lines: list[str]) -> Payload:
    return Payload(kind, lines[:LINES], max(0, len(lines) - LINES))


def _dump(data: bytes) -> list[str]:
    """Sixteen bytes a line: where they stand, what they are, and as ASCII."""
    found = []
    for at in range(0, len(data), 16):
        some = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        found.append(f"{at:08x}  {some.hex(' '):47}  {text}")
    return found
