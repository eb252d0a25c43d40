"""How many deliveries ended how, by the minute and by the hour: for pictures of it, and nothing rests on it.

A handler's minutes of one hour on one topic are a Redis string, and its hours of one day another: four numbers of four
bytes each, which expire once nobody looks so far back. So a handler takes 4 KB at most, however much it handles, and a
Redis that was wiped has lost a picture. Nothing here is keyed by the Kafka cluster: what Redis knows can be told while
Kafka is away.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, Literal, NamedTuple, get_args

from bridge.ledger.client import Ledger
from bridge.ledger.pages import key

#: What is counted: runs of a handler that succeeded, and that failed; dead letters; and what went to it as a replay.
What = Literal["handled", "failed", "dead", "replayed"]
WHATS: Final[tuple[What, ...]] = get_args(What)

#: How many minutes and hours are told.
MINUTES: Final = 60
HOURS: Final = 24
#: Seconds after the last count for which a string is kept: until nobody asks for the last of its minutes, or hours.
_MINUTES_KEPT: Final = 2 * 3_600
_HOURS_KEPT: Final = 2 * 86_400

#: A topic and a handler.
Whose = tuple[str, str]


class Counted(NamedTuple):
    """What is counted together.

    Attributes:
        topic: the source, also of what came by a retry or replay topic.
        minute: since the epoch.
    """

    topic: str
    handler: str
    what: What
    minute: int


class Series(NamedTuple):
    """What was counted of a handler on a topic, the oldest first; the last minute and hour are not over."""

    minutes: Mapping[str, tuple[int, ...]]
    hours: Mapping[str, tuple[int, ...]]


def count(ledger: Ledger, counts: Mapping[Counted, int]) -> None:
    """Add these to what was counted before, in one trip.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    of_minutes: dict[str, list[str | int]] = {}
    of_hours: dict[str, list[str | int]] = {}
    for (topic, handler, what, minute), number in counts.items():
        hour, place = minute // 60, WHATS.index(what)
        minutes = of_minutes.setdefault(_key(ledger, topic, handler, "minutes", hour), [])
        minutes += ["INCRBY", "u32", f"#{minute % 60 * len(WHATS) + place}", number]
        hours = of_hours.setdefault(_key(ledger, topic, handler, "hours", hour // 24), [])
        hours += ["INCRBY", "u32", f"#{hour % 24 * len(WHATS) + place}", number]
    with ledger.asking("count what was handled") as pipe:
        for strings, kept in ((of_minutes, _MINUTES_KEPT), (of_hours, _HOURS_KEPT)):
            for name, fields in strings.items():
                pipe.execute_command("BITFIELD", name, "OVERFLOW", "SAT", *fields)
                pipe.expire(name, kept)
        pipe.execute()


def counted(ledger: Ledger, whose: Iterable[Whose], now: float) -> dict[Whose, Series]:
    """Return the last 60 minutes and 24 hours of each, in one trip; nothing known is 0.

    Parameters:
        now: Unix time, whose minute is the last.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(whose))
    if not wanted:
        return {}
    hour = int(now // 3_600)
    names = [
        _key(ledger, topic, handler, *which)
        for topic, handler in wanted
        for which in (
            ("minutes", hour - 1),
            ("minutes", hour),
            ("hours", hour // 24 - 1),
            ("hours", hour // 24),
        )
    ]
    with ledger.asking("read what was counted") as pipe:
        pipe.mget(names)
        (found,) = pipe.execute()
    minute = int(now // 60) % 60 + 60
    return {
        each: Series(
            _last(_MINUTES, found[at : at + 2], minute, MINUTES),
            _last(_HOURS, found[at + 2 : at + 4], hour % 24 + 24, HOURS),
        )
        for each, at in zip(wanted, range(0, len(found), 4), strict=True)
    }


_MINUTES: Final = Struct(f">{60 * len(WHATS)}I")
_HOURS: Final = Struct(f">{24 * len(WHATS)}I")


def _last(form: Struct, strings: Iterable[bytes | None], last: int, count: int) -> dict[str, tuple[int, ...]]:
    """Of two strings, one after the other, the numbers up to place `last`; what is of another length is another's."""
    numbers: list[int] = []
    for string in strings:
        numbers += form.unpack((string or b"")[: form.size].ljust(form.size, b"\0"))
    step, first = len(WHATS), last + 1 - count
    return {what: tuple(numbers[first * step + at : (last + 1) * step : step]) for at, what in enumerate(WHATS)}


def _key(ledger: Ledger, topic: str, handler: str, unit: str, number: int) -> str:
    return key("", ledger.group, "counts", topic, handler, unit, number)
