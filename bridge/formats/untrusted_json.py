"""JSON that another program may have written: parsed within limits, so that every later use of it is safe (pure)."""

import json
from functools import lru_cache
from logging import Logger
from math import isfinite
from typing import Any, Final

from bridge.errors import UnreadableJson

#: Levels of lists and objects inside each other; the project writes six at most.
DEEPEST: Final = 32
#: The largest whole number, as Kafka's offsets and times have it; a float holds it too.
LARGEST: Final = 2**63 - 1
#: The end of the year 9998: a later Unix time cannot be written as a date in every time zone.
LATEST: Final = 253_370_764_800.0


def parse_json(raw: Any) -> Any:
    """Return the value of a JSON text: numbers are finite and at most `LARGEST`, and each text can be encoded.

    Raises:
        UnreadableJson: whatever is wrong with it.
    """
    try:
        return _within_limits(json.loads(raw), DEEPEST)
    except UnreadableJson:
        raise
    except Exception as error:
        # RecursionError, OverflowError and MemoryError among them: the writer decides which one it is.
        raise UnreadableJson(f"it is no JSON that can be read ({type(error).__name__})") from None


def is_time(value: object) -> bool:
    """Return whether a value is a Unix time that can be written as a date."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: `?` stands for each half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@lru_cache(1_000)
def log_skipped_once(logger: Logger, what: str, why: str) -> None:
    """Log once what was skipped because it cannot be read, and why."""
    logger.warning("%s cannot be read and is skipped: %s.", what, why)


def _within_limits(value: Any, levels: int) -> Any:
    match value:
        case str():
            return encodable(value)
        case bool() | None:
            return value
        case int() | float():
            if not (abs(value) <= LARGEST if isinstance(value, int) else isfinite(value)):
                raise UnreadableJson("it has a number that is too large")
            return value
    if not levels:
        raise UnreadableJson(f"it is deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        return {encodable(name): _within_limits(each, levels - 1) for name, each in value.items()}
    return [_within_limits(each, levels - 1) for each in value]
