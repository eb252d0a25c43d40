"""Bytes of Kafka's as text that JSON takes: keys, values and headers (pure)."""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable
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
