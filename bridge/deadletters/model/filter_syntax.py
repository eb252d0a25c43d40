"""The syntax of filter values as people write them: times, keys, headers, statuses, and the ends of a redrive's
range (pure).
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import FilterFault, NoMoment

_AGO: Final = re.compile(r"([0-9]+)\s*(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS: Final = {"today": 0, "yesterday": 1}
#: Prefixes of a key or a header's value; a text that begins with one needs the prefix `text:`.
_HEX, _BASE64, _TEXT = "0x", "base64:", "text:"


def parse_moment(text: str, now: float) -> int:
    """Return the time of a text: `2h`, `3d` (that long ago), "today", "yesterday" (their begin), or ISO 8601;
    without a zone, UTC.

    Parameters:
        now: Unix time.

    Returns: milliseconds since the epoch.

    Raises:
        FilterFault: the text is no time.
    """
    try:
        # A year out of range is no time either: pages write it as a date.
        return _to_milliseconds(_parse_time_of_day(text.strip(), datetime.fromtimestamp(now, UTC)).astimezone(UTC))
    except (ValueError, OverflowError):
        raise FilterFault(
            f"{text[:100]!r} is no time: write 2026-11-20T08:00 (UTC), 2026-11-20T08:00+01:00, 2h, 3d, today or "
            "yesterday."
        ) from None


def _parse_time_of_day(text: str, now: datetime) -> datetime:
    said = text.lower()
    if ago := _AGO.fullmatch(said):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    if said in _DAYS:
        return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=_DAYS[said])
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def parse_key(text: str) -> bytes:
    """Return a record's key: text as it is, `0x…` in hexadecimal, `base64:…`; `text:0x…` if the text itself begins
    so.

    Raises:
        FilterFault: the text after 0x or base64: is invalid.
    """
    try:
        return _parse_bytes(text)
    except (ValueError, binascii.Error):
        raise FilterFault(f"The key {text!r} is not what it begins as: put text: before its text.") from None


def parse_header(text: str) -> tuple[str, str]:
    """Return a header, written `name=value`, with its value as a key is written: `name=0x00ff`.

    Returns: name and value; bytes that are no UTF-8 as `surrogateescape` has them.

    Raises:
        FilterFault: the name or the = is missing, or the text after 0x or base64: is invalid.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise FilterFault(f"{text!r} is no header: write name=value.")
    return name, parse_header_value(value, name)


def parse_header_value(text: str, name: str) -> str:
    """Return a header's value from the text that a person, or `write_header_value`, wrote.

    Raises:
        FilterFault: the text after 0x or base64: is invalid.
    """
    try:
        return _parse_bytes(text).decode("utf-8", "surrogateescape")
    except (ValueError, binascii.Error):
        raise FilterFault(
            f"The value {text!r} of header {name!r} is not what it begins as: put text: before its text."
        ) from None


def write_header_value(value: str) -> str:
    """Return the text that `parse_header_value` reads as this value: text, or hexadecimal if it is no text."""
    octets = value.encode("utf-8", "surrogateescape")
    if "\0" in value or octets != value.encode("utf-8", "replace"):
        return f"{_HEX}{octets.hex()}"
    return f"{_TEXT}{value}" if value.startswith((_HEX, _BASE64, _TEXT)) else value


def _parse_bytes(text: str) -> bytes:
    if text.startswith(_HEX):
        return bytes.fromhex(text.removeprefix(_HEX))
    if text.startswith(_BASE64):
        return b64decode(text.removeprefix(_BASE64), validate=True)
    return text.removeprefix(_TEXT).encode("utf-8", "surrogateescape")


def parse_statuses(texts: Iterable[str]) -> tuple[LetterStatus, ...]:
    """Return statuses by their names.

    Raises:
        FilterFault: there is no such status.
    """
    found = [text.strip().lower() for text in texts]
    for text in found:
        if text not in list(LetterStatus):
            raise FilterFault(f"There is no status {text!r}: a letter is {', '.join(LetterStatus)}.")
    return tuple(LetterStatus(text) for text in found)


def _to_milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def parse_range_end(text: str, now: float) -> str:
    """Return an end of a range as Kafka needs it: a time with its zone.

    Parameters:
        text: `earliest`, `latest`, an offset, or a time as filters take it (`2026-11-20T08:00`, `2h`, `today`).
        now: seconds since the epoch.

    Raises:
        NoMoment: the text is none of these.
    """
    if text in ("earliest", "latest") or (text.isascii() and text.isdecimal()):
        return text
    try:
        return datetime.fromtimestamp(parse_moment(text, now) / 1000, UTC).isoformat()
    except FilterFault as error:
        raise NoMoment(f"{str(error).rstrip('.')}; or an offset, earliest or latest.") from None
