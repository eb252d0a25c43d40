"""Counts and durations of attempts by topic and handler, by the minute and the hour, for charts and problems.

No delivery depends on them. They include all attempts. Their keys do not name the Kafka cluster, so they can be read
while Kafka is down.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

from bridge.ledger.attempt_statistics import TopicHandler
from bridge.ledger.duration_histogram import BUCKETS, add_up_buckets
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

#: The counted events: runs that succeeded, runs that failed, dead letters, and replays.
CountKind = Literal["handled", "failed", "dead", "replayed"]
COUNT_KINDS: Final[tuple[CountKind, ...]] = get_args(CountKind)

#: The number of minutes and hours that are returned.
MINUTES: Final = 60
HOURS: Final = 24


class TimeUnit(NamedTuple):
    """A unit of time for which something is kept in Redis.

    Attributes:
        name: as it is in keys.
        seconds: its length.
        slots: how many of them one string of Redis has.
        kept: seconds that a string is kept after its last write, until no chart shows its first slots.
    """

    name: str
    seconds: int
    slots: int
    kept: int


MINUTE_UNIT: Final = TimeUnit("minutes", 60, 60, 2 * 3_600)
HOUR_UNIT: Final = TimeUnit("hours", 3_600, 24, 8 * 86_400)


class CountKey(NamedTuple):
    """The key of a count.

    Attributes:
        topic: the source topic, also for records from a retry or replay topic.
        minute: since the epoch.
    """

    topic: str
    handler: str
    what: CountKind
    minute: int


class DurationKey(NamedTuple):
    """The key of the durations of a minute (since the epoch)."""

    topic: str
    handler: str
    minute: int


class CountSeries(NamedTuple):
    """The counts of a handler on a topic, the oldest first; the last minute and hour are incomplete."""

    minutes: Mapping[str, tuple[int, ...]]
    hours: Mapping[str, tuple[int, ...]]


#: The durations of runs: how many each bucket of bridge/ledger/duration_histogram.py has.
Durations = Mapping[DurationKey, Mapping[int, int]]


def add_counts(
    ledger: Ledger, counts: Mapping[CountKey, int], durations: Durations = MappingProxyType[DurationKey, Any]({})
) -> None:
    """Add counts and durations to those in Redis, in one round trip.

    A string has the counts of all its minutes or hours, and behind them the durations: both are one command.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    strings: dict[str, list[str | int]] = {}
    kept: dict[str, int] = {}
    numbers = [
        (topic, handler, minute, False, COUNT_KINDS.index(what), number)
        for (topic, handler, what, minute), number in counts.items()
    ]
    numbers += [
        (*key, True, bucket, number) for key, buckets in durations.items() for bucket, number in buckets.items()
    ]
    for topic, handler, minute, timed, at, number in numbers:
        for unit, moment in ((MINUTE_UNIT, minute), (HOUR_UNIT, minute // 60)):
            name = make_counts_key(ledger, topic, handler, unit, moment // unit.slots)
            slot, kept[name] = moment % unit.slots, unit.kept
            place = unit.slots * len(COUNT_KINDS) + slot * BUCKETS + at if timed else slot * len(COUNT_KINDS) + at
            strings.setdefault(name, []).extend(("INCRBY", "u32", f"#{place}", number))
    with ledger.asking("count what was handled") as pipe:
        for name, fields in strings.items():
            pipe.execute_command("BITFIELD", name, "OVERFLOW", "SAT", *fields)
            pipe.expire(name, kept[name])
        pipe.execute()


def read_counts(ledger: Ledger, whose: Iterable[TopicHandler], now: float) -> dict[TopicHandler, CountSeries]:
    """Return the last 60 minutes and 24 hours of each topic and handler, in one round trip; unknown counts are 0.

    Parameters:
        now: Unix time; its minute is the last one.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(whose))
    if not wanted:
        return {}
    minutes, hours = (CountReading(unit, count, now) for unit, count in ((MINUTE_UNIT, MINUTES), (HOUR_UNIT, HOURS)))
    with ledger.asking("read what was counted") as pipe:
        for each in wanted:
            minutes.ask(pipe, ledger, *each)
            hours.ask(pipe, ledger, *each)
        answers = iter(pipe.execute(raise_on_error=False))
    return {each: CountSeries(minutes.take_counts(answers), hours.take_counts(answers)) for each in wanted}


class CountReading:
    """A reading of the last minutes or hours of handlers: its questions, and what their answers say.

    A string that another program wrote reads as 0.

    Parameters:
        count: how many minutes or hours are returned.
        now: Unix time; its minute or hour is the last one.
        durations: whether the durations are read too.
    """

    def __init__(self, unit: TimeUnit, count: int, now: float, *, durations: bool = False) -> None:
        self._unit, self._durations = unit, durations
        last = int(now // unit.seconds)
        first = last - count + 1
        self._strings = range(first // unit.slots, last // unit.slots + 1)
        start = first - self._strings.start * unit.slots
        self._taken = range(start, start + count)
        self._counted = Struct(f">{unit.slots * len(COUNT_KINDS)}I")
        self._timed = Struct(f">{unit.slots * BUCKETS}I")

    def ask(self, pipe: Any, ledger: Ledger, topic: str, handler: str) -> None:
        """Ask for the strings of a handler on a topic."""
        end = self._counted.size + (self._timed.size if self._durations else 0) - 1
        for number in self._strings:
            pipe.getrange(make_counts_key(ledger, topic, handler, self._unit, number), 0, end)

    def take_strings(self, answers: Iterator[Any]) -> list[bytes]:
        """Return the strings of one handler among the answers."""
        return [self._take_string(next(answers)) for _ in self._strings]

    @staticmethod
    def _take_string(answer: Any) -> bytes:
        return b"" if is_wrong_type(answer) else raise_error_answer(answer)

    def take_counts(self, answers: Iterator[Any]) -> dict[str, tuple[int, ...]]:
        """Return the counts of one handler among the answers."""
        return self.read_counts(self.take_strings(answers))

    def read_counts(self, strings: Iterable[bytes]) -> dict[str, tuple[int, ...]]:
        """Return the counts in the strings of a handler."""
        numbers: list[int] = []
        for string in strings:
            numbers += self._counted.unpack(string[: self._counted.size].ljust(self._counted.size, b"\0"))
        step = len(COUNT_KINDS)
        return {what: tuple(numbers[slot * step + at] for slot in self._taken) for at, what in enumerate(COUNT_KINDS)}

    def read_durations(self, strings: Iterable[bytes]) -> tuple[tuple[int, ...], ...]:
        """Return for each minute or hour how many runs each bucket has."""
        numbers: list[int] = []
        for string in strings:
            numbers += self._timed.unpack(string[self._counted.size :].ljust(self._timed.size, b"\0"))
        return tuple(tuple(numbers[slot * BUCKETS : (slot + 1) * BUCKETS]) for slot in self._taken)


class DeliveryHistory(NamedTuple):
    """The counts and durations of handlers in the last minutes or hours, oldest first; the last one is incomplete.

    Attributes:
        counts: by kind.
        durations: for each minute or hour, how many runs each bucket has.
    """

    counts: Mapping[str, tuple[int, ...]]
    durations: tuple[tuple[int, ...], ...]


def read_history(
    ledger: Ledger, whose: Iterable[TopicHandler], unit: TimeUnit, count: int, now: float, *, durations: bool = True
) -> DeliveryHistory:
    """Return what these handlers did on these topics together, in one round trip.

    Parameters:
        count: how many minutes or hours.
        now: Unix time; its minute or hour is the last one.
        durations: whether to read the durations too; else they are empty.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted, reading = list(dict.fromkeys(whose)), CountReading(unit, count, now, durations=durations)
    with ledger.asking("read what was counted") as pipe:
        for each in wanted:
            reading.ask(pipe, ledger, *each)
        answers = iter(pipe.execute(raise_on_error=False))
    strings = [reading.take_strings(answers) for _ in wanted]
    counts = [reading.read_counts(each) for each in strings]
    timed = [reading.read_durations(each) for each in strings] if durations else []
    return DeliveryHistory(
        {
            kind: tuple(map(sum, zip((0,) * count, *(each[kind] for each in counts), strict=True)))
            for kind in COUNT_KINDS
        },
        tuple(map(add_up_buckets, zip(*timed, strict=True))) if timed else (add_up_buckets(()),) * count,
    )


def make_counts_key(ledger: Ledger, topic: str, handler: str, unit: TimeUnit, number: int) -> str:
    """Return the key of the string with the counts and durations of a handler on a topic."""
    return ledger_key("", ledger.group, "counts", topic, handler, unit.name, number)
