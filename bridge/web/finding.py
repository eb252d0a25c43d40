"""What somebody asks Find for: a coordinate, a task, a letter, a plan or a key; and the answer as a sentence (pure)."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from bridge.deadletters.masking.quotes import Quotes

#: `orders-3-1234`, a task of it (`orders-3-1234:orders.handlers.charge#2`), or of a batch (`orders-3-1234..1240:…`).
_RECORD: Final = re.compile(
    r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d+)-(?P<offset>\d+)(?:\.\.\d+)?(?::(?P<handler>[\w.]+))?(?:#\d+)?",
    re.ASCII,
)
_PLAN: Final = re.compile(r"plan\s+(\d{1,18})", re.IGNORECASE)
#: Digits of a number that Kafka or the database has.
_DIGITS: Final = 18


class Record(NamedTuple):
    """A record by its place; `handler`: whose delivery, where that was said."""

    topic: str
    partition: int
    offset: int
    handler: str | None


class Key(NamedTuple):
    """A key; in a topic, where one was named."""

    topic: str | None
    key: str


class Letter(NamedTuple):
    """A letter by its number."""

    id: int


class Plan(NamedTuple):
    """A plan by its number."""

    id: int


Wanted = Record | Key | Letter | Plan


def wanted(text: str, topics: Collection[str]) -> Wanted:
    """What is asked for; what is nothing else is a key.

    Parameters:
        text: without spaces around it.
        topics: the group's.
    """
    if match := _PLAN.fullmatch(text):
        return Plan(int(match[1]))
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return Letter(int(text))
    match = _RECORD.fullmatch(text)
    if match and max(len(match["partition"]), len(match["offset"])) <= _DIGITS:
        return Record(match["topic"], int(match["partition"]), int(match["offset"]), match["handler"])
    first, _, rest = text.partition(" ")
    if first in topics and rest.strip():
        return Key(first, rest.strip())
    return Key(None, text)


def unquoted(deliveries: Iterable[Mapping[str, Any]], known: Quotes) -> list[dict[str, Any]]:
    """Deliveries as `bridge find` has them; their last errors without what somebody does not see."""
    return [{**each, "last_error": each["last_error"] and known.masked(str(each["last_error"]))} for each in deliveries]


def fate(deliveries: Collection[Mapping[str, Any]]) -> str:
    """What became of a record, in a few words: `is dead for 1 of 3 handlers`."""
    if not deliveries:
        return "is in Kafka, and no handler has its topic"
    fates = [each["fate"] for each in deliveries]
    for worst, words in (("dead", "is dead"), ("parked", "waits"), ("handed", "is under way"), ("open", "is open")):
        if count := fates.count(worst):
            return f"{words} for {count} of {len(fates)} handler{'' if len(fates) == 1 else 's'}"
    if len(set(fates)) == 1:
        return f"is {fates[0]} for {'its handler' if len(fates) == 1 else f'all {len(fates)} handlers'}"
    return "has ended for all handlers"
