"""Text forms of bytes (base64), times (ISO 8601), and untrusted text made harmless for a terminal (pure)."""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

#: Prefixes of bytes that are written as text; a text that begins with one needs the prefix `text:`.
_HEX, _BASE64, _TEXT = "0x", "base64:", "text:"


def to_text(value: bytes | None) -> str | None:
    """Return bytes in base64; `None` stays `None`."""
    return None if value is None else b2a_base64(value, newline=False).decode("ascii")


def to_bytes(value: str | None) -> bytes | None:
    """Return the bytes of a base64 text; `None` stays `None`.

    Raises:
        ValueError: it is no base64.
    """
    return None if value is None else b64decode(value, validate=True)


def to_pairs(headers: Iterable[tuple[str, bytes | None]]) -> list[list[str | None]]:
    """Return headers as pairs of name and base64 text."""
    return [[name, to_text(given)] for name, given in headers]


def to_headers(pairs: Iterable[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers from the pairs that `to_pairs` made; `None` gives no headers.

    Raises:
        ValueError, TypeError: they are no such pairs.
    """
    return tuple((str(name), to_bytes(given)) for name, given in pairs) if pairs else ()


def parse_octets(text: str, what: str) -> bytes:
    """Return the bytes that a person, or `write_octets`, wrote: text as it is, `0x…` in hexadecimal, `base64:…`;
    `text:0x…` if the text itself begins so.

    Parameters:
        what: a noun for the bytes, for the error.

    Raises:
        ValueError: the text after 0x or base64: is invalid; it says what to write.
    """
    try:
        if text.startswith(_HEX):
            return bytes.fromhex(text.removeprefix(_HEX))
        if text.startswith(_BASE64):
            return b64decode(text.removeprefix(_BASE64), validate=True)
        return text.removeprefix(_TEXT).encode("utf-8", "surrogateescape")
    except ValueError:
        form = "hexadecimal" if text.startswith(_HEX) else "base64"
        raise ValueError(f"{text!r} is not valid {form}. For this text as a {what}, write {_TEXT}{text}.") from None


def write_octets(octets: bytes) -> str:
    """Return the printable text that `parse_octets` reads as these bytes: text, or hexadecimal if that cannot be."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        return f"{_HEX}{octets.hex()}"
    # An empty option or field says nothing: it may be an empty variable of a script.
    return text if text and not text.startswith((_HEX, _BASE64, _TEXT)) else f"{_TEXT}{text}"


def make_printable(text: str, keep: str = "") -> str:
    r"""Return a text with unprintable characters as `\x1b`, `\n` or `\u202e`: it cannot colour, or begin a line.

    Parameters:
        keep: characters that stay unchanged.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text
    )


def format_time(at: float, precision: str = "seconds") -> str:
    """Return a Unix time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=precision)


#: The singular of a verb that does not only get an s.
_SINGULAR_VERBS: Final = {"are": "is", "were": "was", "have": "has", "do": "does"}


def format_count(count: float, noun: str, verb: str = "") -> str:
    """Return a number with its noun, and with the verb of that number.

    Parameters:
        noun: in the singular.
        verb: in the plural.

    >>> format_count(1, "delivery", "are"), format_count(1234, "delivery", "wait")
    ('1 delivery is', '1,234 deliveries wait')
    """
    return f"{count:,.0f} {_inflect(count, noun)}" + (f" {inflect_verb(count, verb)}" if verb else "")


def format_share(count: int, of: int, noun: str, verb: str) -> str:
    """Return a part of a number, with its noun and verb.

    >>> format_share(1, 2, "worker", "do"), format_share(2, 2, "bridge", "consume")
    ('1 of 2 workers does', '2 of 2 bridges consume')
    """
    return f"{count:,} of {format_count(of, noun)} {inflect_verb(count, verb)}"


def _inflect(count: float, noun: str) -> str:
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2] not in "aeo":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def inflect_verb(count: float, verb: str) -> str:
    """Return a verb, given in the plural, for a number."""
    return _SINGULAR_VERBS.get(verb, f"{verb}s") if count == 1 else verb
