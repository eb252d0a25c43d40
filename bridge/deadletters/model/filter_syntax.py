"""The values of filter fields, by their types: as people write them, as JSON, and which values of a letter they match;
and the ends of a redrive's range (pure).
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bridge.deadletters.model.search_words import split_words
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.model.value_match import has_value_fields
from bridge.errors import FilterFault, NoMoment
from bridge.formats.delivery import Headers
from bridge.formats.text_forms import parse_octets, write_octets

_AGO: Final = re.compile(r"([0-9]+)\s*(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS: Final = {"today": 0, "yesterday": 1}


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
    return _parse_octets(text, "key")


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


def parse_value_field(text: str) -> tuple[str, str]:
    """Return a field of values and its text, written `order.currency=EUR`.

    Raises:
        FilterFault: the name or the = is missing, or a part of the name is.
    """
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise FilterFault(f"{text[:100]!r} is no field of a value: write order.currency=EUR, with dots between names.")
    return name, value


def parse_header_value(text: str, name: str) -> str:
    """Return a header's value from the text that a person, or `write_header_value`, wrote.

    Raises:
        FilterFault: the text after 0x or base64: is invalid.
    """
    return _parse_octets(text, f"value of header {name!r}").decode("utf-8", "surrogateescape")


def write_header_value(value: str) -> str:
    """Return the text that `parse_header_value` reads as this value: text, or hexadecimal if it is no text."""
    return write_octets(value.encode("utf-8", "surrogateescape")) if value else value


def _parse_octets(text: str, what: str) -> bytes:
    try:
        return parse_octets(text, what)
    except ValueError as error:
        raise FilterFault(str(error)) from None


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


#: The text that sets a flag.
YES: Final = "yes"


class ValueType:
    """The type of a filter field's value: several texts, of which a letter has one; and the base of the other types.

    Attributes:
        empty: the value that matches all letters.
    """

    empty: Any = ()

    def parse(self, texts: Sequence[str], now: float) -> Any:
        """Return the value of texts that a person wrote.

        Raises:
            FilterFault: a text is malformed.
        """
        return tuple(texts)

    def to_json(self, value: Any) -> Any:
        """Return a value as JSON."""
        return list(value)

    def from_json(self, data: Any) -> Any:
        """Return the value that `to_json` wrote; any error means that the data is none."""
        return tuple(map(str, data))

    def write(self, data: Any) -> list[str]:
        """Return a value in JSON as the texts that `parse` reads."""
        return [*map(str, data)]

    def matches(self, wanted: Any, had: Any) -> bool:
        """Return whether a letter's value is meant."""
        return had in wanted


class _ClassNames(ValueType):
    def matches(self, wanted: Sequence[str], had: str) -> bool:
        return any(had == name or had.endswith(f".{name}") for name in wanted)


class _Numbers(ValueType):
    def parse(self, texts: Sequence[str], now: float) -> tuple[int, ...]:
        return tuple(map(parse_number, texts))

    def from_json(self, data: Any) -> tuple[int, ...]:
        return tuple(map(int, data))


class _Statuses(ValueType):
    def parse(self, texts: Sequence[str], now: float) -> tuple[LetterStatus, ...]:
        return parse_statuses(texts)

    def from_json(self, data: Any) -> tuple[LetterStatus, ...]:
        return tuple(map(LetterStatus, data))


class _Headers(ValueType):
    """Names and values, all of which a letter has; bytes that are no UTF-8 as in `surrogateescape`."""

    def parse(self, texts: Sequence[str], now: float) -> tuple[tuple[str, str], ...]:
        return tuple(map(parse_header, texts))

    def to_json(self, value: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[name, write_header_value(text)] for name, text in value]

    def from_json(self, data: Any) -> tuple[tuple[str, str], ...]:
        return tuple((str(name), parse_header_value(str(text), str(name))) for name, text in data)

    def write(self, data: Any) -> list[str]:
        return ["=".join(header) for header in data]

    def matches(self, wanted: Sequence[tuple[str, str]], had: Headers) -> bool:
        return all((name, value.encode("utf-8", "surrogateescape")) in had for name, value in wanted)


class _ValueFields(ValueType):
    """Fields of values, and their texts, all of which a letter has (model/value_match.py)."""

    def parse(self, texts: Sequence[str], now: float) -> tuple[tuple[str, str], ...]:
        return tuple(map(parse_value_field, texts))

    def to_json(self, value: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[*pair] for pair in value]

    def from_json(self, data: Any) -> tuple[tuple[str, str], ...]:
        return tuple((str(name), str(text)) for name, text in data)

    def write(self, data: Any) -> list[str]:
        return ["=".join(pair) for pair in data]

    def matches(self, wanted: Sequence[tuple[str, str]], had: Any) -> bool:
        return has_value_fields(had, wanted)


class _Number(ValueType):
    """A number of which a letter has as much, or more."""

    empty: Any = None

    def parse(self, texts: Sequence[str], now: float) -> int:
        return parse_number(texts[-1])

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, data: Any) -> Any:
        return int(data)

    def write(self, data: Any) -> list[str]:
        return [str(data)]

    def matches(self, wanted: Any, had: Any) -> bool:
        return bool(had >= wanted)


class _Words(_Number):
    """Words that a letter has, in any order (model/search_words.py)."""

    empty: Any = ""

    def parse(self, texts: Sequence[str], now: float) -> Any:
        return " ".join(texts)

    def from_json(self, data: Any) -> str:
        return str(data)

    def matches(self, wanted: str, had: Collection[str]) -> bool:
        return set(split_words(wanted)) <= set(had)


class _Key(_Number):
    def parse(self, texts: Sequence[str], now: float) -> Any:
        return parse_key(texts[-1])

    def to_json(self, value: bytes) -> str:
        return b64encode(value).decode()

    def from_json(self, data: str) -> bytes:
        return b64decode(data, validate=True)

    def write(self, data: str) -> list[str]:
        return [f"base64:{data}"]

    def matches(self, wanted: bytes, had: bytes | None) -> bool:
        return had == wanted


class _Since(_Number):
    def parse(self, texts: Sequence[str], now: float) -> int:
        return parse_moment(texts[-1], now)

    def write(self, data: int) -> list[str]:
        at = datetime.fromtimestamp(data / 1000, UTC)
        return [at.isoformat(timespec="milliseconds").replace("+00:00", "Z")]


class _Until(_Since):
    def matches(self, wanted: int, had: int) -> bool:
        return had < wanted


class _Flag(_Number):
    empty: Any = False

    def parse(self, texts: Sequence[str], now: float) -> Any:
        if other := [text for text in texts if text != YES]:
            raise FilterFault(f"{other[0]!r} is not {YES!r}: for letters that died again say {YES!r}, or leave it out.")
        return True

    def from_json(self, data: Any) -> bool:
        return bool(data)

    def write(self, data: Any) -> list[str]:
        return [YES] if data else []


NAMES: Final = ValueType()
CLASS_NAMES: Final = _ClassNames()
NUMBERS: Final = _Numbers()
STATUSES: Final = _Statuses()
HEADERS: Final = _Headers()
VALUE_FIELDS: Final = _ValueFields()
LEAST: Final = _Number()
WORDS: Final = _Words()
KEY: Final = _Key()
SINCE: Final = _Since()
UNTIL: Final = _Until()
FLAG: Final = _Flag()


def parse_number(text: str) -> int:
    """Return a number that people write.

    Raises:
        FilterFault: the text is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FilterFault(f"{text!r} is no number: letters, groups, plans and attempts are numbers.")
    return int(text)
