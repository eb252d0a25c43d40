"""A letter as a line of JSON: exported, archived, and read again into a database (pure).

A line has all that the database has of it. Times are ISO 8601, bytes are base64 with the text that they are beside it,
where they are one: the base64 is what counts.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bridge.deadletters.letters.letter import packed, unpacked
from bridge.errors import NoExport

#: What is a time, beside what ends in `_at`: ms since the epoch in the database.
_TIMES: Final = ("timestamp", "at")
#: What a letter cannot do without.
_NEEDED: Final = (
    "digest",
    "consumer_group",
    "topic",
    "topic_id",
    "partition",
    "offset",
    "handler",
    "status",
    "failed_at",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def line(stored: Mapping[str, Any]) -> str:
    """One letter, without a line break.

    Parameters:
        stored: columns and their values; lists have such mappings in turn (`bridge.deadletters.store.whole`).
    """
    return json.dumps(_each(stored, _written), separators=(", ", ": "))


def read(text: str | bytes) -> dict[str, Any]:
    """What `line` was given.

    Raises:
        NoExport: it is no line of an export.
    """
    try:
        found: Any = json.loads(text)
        if not isinstance(found, dict) or any(name not in found for name in _NEEDED):
            raise NoExport("it is no dead letter of an export.")
        return _each(found, _read)
    except NoExport:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise NoExport(f"it cannot be read ({type(error).__name__}).") from None


def _each(found: Mapping[str, Any], one: Callable[[str, Any], Any]) -> dict[str, Any]:
    return {
        name: [_each(each, one) for each in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else one(name, value)
        for name, value in found.items()
    }


def _written(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "headers":
        return [[header, _bytes(part)] for header, part in unpacked(value)]
    if _is_time(name):
        return _time(value)
    return _bytes(value) if isinstance(value, bytes | memoryview) else value


def _read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "headers":
        return packed([(str(header), None if part is None else _data(part)) for header, part in value])
    if _is_time(name):
        return value if isinstance(value, int) else (datetime.fromisoformat(value) - _EPOCH) // _MS
    return _data(value) if isinstance(value, dict) else value


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in _TIMES


def _time(value: int) -> str | int:
    """As ISO 8601; a number that is none that a calendar has stays one."""
    try:
        return (_EPOCH + value * _MS).isoformat(timespec="milliseconds")
    except OverflowError:
        return value


def _bytes(value: bytes | memoryview | None) -> dict[str, str] | None:
    if value is None:
        return None
    plain = bytes(value)
    found = {"base64": b64encode(plain).decode()}
    try:
        return {"text": plain.decode(), **found}
    except UnicodeDecodeError:
        return found


def _data(value: Mapping[str, str]) -> bytes:
    return b64decode(value["base64"], validate=True)
