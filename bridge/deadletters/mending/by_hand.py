"""A value as somebody edits it in a form of a browser, and back: so that what nobody changed stays what it was (pure).

A browser changes line breaks, and shows no control characters. JSON can say them otherwise; other text that has such
is edited elsewhere.
"""

from typing import Final, NamedTuple

from bridge.deadletters.mending import json_text
from bridge.errors import EditRefused, NoJson

#: Most bytes that are edited in a form.
LARGEST: Final = 400_000
#: Where else it can be.
ELSEWHERE: Final = "edit it in a terminal: bridge deadletters edit LETTER --file FILE"


class Offered(NamedTuple):
    """A value to be edited.

    Attributes:
        is_json: then it is indented, and goes back without those spaces.
    """

    text: str
    is_json: bool


def offered(value: bytes | None) -> Offered:
    """A value as text that a form keeps.

    Raises:
        EditRefused: it is none; says what to do.
    """
    if value is None:
        return Offered("", False)
    if len(value) > LARGEST:
        raise EditRefused(f"A value of {len(value):,} bytes is too large for a form: {ELSEWHERE}.")
    try:
        return Offered("".join(map(_said, "\n".join(json_text.lines(json_text.read(value))))), True)
    except (NoJson, RecursionError):
        pass
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise EditRefused(f"This value is no text: {ELSEWHERE}.") from None
    if any(not _kept(each) for each in text):
        raise EditRefused(f"This value has characters that a browser does not keep: {ELSEWHERE}.")
    return Offered(text, False)


def typed(text: str, before: bytes | None) -> bytes:
    """The value that a form's text means.

    Parameters:
        before: the value that was offered. Where that is JSON and the text is, it is written as a patch writes it.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if before is not None:
        try:
            json_text.read(before)
            return json_text.written(json_text.read(text), before)
        except NoJson:
            pass
    return text.encode("utf-8", "replace")


def _kept(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _said(character: str) -> str:
    """A character of a JSON text; what a browser would not show as its escape, which only strings can have."""
    if _kept(character):
        return character
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
