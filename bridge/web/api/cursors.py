"""Where a page of a list ends, as an opaque word (pure)."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from bridge.errors import FilterFault


def written(list_: str, end: object) -> str:
    """A cursor of a list."""
    return urlsafe_b64encode(f"{list_}:{end}".encode()).decode().rstrip("=")


def read(list_: str, cursor: str) -> str:
    """The end of a page that a cursor of this list says.

    Raises:
        FilterFault: it is none of this list.
    """
    try:
        of, _, end = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii").partition(":")
    except (ValueError, binascii.Error):
        of, end = "", ""
    if of != list_ or not end:
        raise FilterFault("This cursor is none of this list: give `next` of the page before, as it is.")
    return end


def number(list_: str, cursor: str | None) -> int | None:
    """The number at which a page ends; `None`: it is the first.

    Raises:
        FilterFault: as `read`.
    """
    if cursor is None:
        return None
    end = read(list_, cursor)
    if not (end.isdecimal() and len(end) < 19):
        raise FilterFault("This cursor is none of this list: give `next` of the page before, as it is.")
    return int(end)
