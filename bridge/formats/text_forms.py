"""Bytes, times and other people's text as text: base64 for JSON, ISO 8601, and escapes made harmless for a terminal
(pure).
"""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any


def to_text(value: bytes | None) -> str | None:
    """In base64; `None` stays."""
    return None if value is None else b2a_base64(value, newline=False).decode("ascii")


def to_bytes(value: str | None) -> bytes | None:
    """What `to_text` was given.

    Raises:
        ValueError: it is no base64.
    """
    return None if value is None else b64decode(value, validate=True)


def to_pairs(headers: Iterable[tuple[str, bytes | None]]) -> list[list[str | None]]:
    """Headers as pairs of name and text."""
    return [[name, to_text(given)] for name, given in headers]


def to_headers(pairs: Iterable[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    """What `to_pairs` was given; `None` is none.

    Raises:
        ValueError, TypeError: they are no such pairs.
    """
    return tuple((str(name), to_bytes(given)) for name, given in pairs) if pairs else ()


def make_printable(text: str, keep: str = "") -> str:
    r"""Write what is not printable as `\x1b`, `\n` or `\u202e`: it neither colours, nor begins a line of its own.

    Parameters:
        keep: characters that stay as they are all the same.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text
    )


def format_time(at: float, precision: str = "seconds") -> str:
    """A Unix time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=precision)
