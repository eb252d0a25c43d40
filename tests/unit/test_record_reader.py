"""Records are read back up to an offset, whatever lies between, and not for ever."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from bridge.errors import KafkaUnavailable
from bridge.formats.dead_letter_record import dead_letter_headers
from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.kafka import dead_letter_reader, record_reader
from bridge.kafka.partition_offsets import Extent
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})


class Record:
    def __init__(self, partition: int, offset: int, given: Any = None, fault: Any = None) -> None:
        self._place, self._headers, self._fault = (partition, offset), given, fault

    def error(self) -> Any:
        return self._fault

    def topic(self) -> str:
        return "orders.dlq"

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def headers(self) -> Any:
        return self._headers

    def key(self) -> None:
        """None has a key."""


class Consumer:
    """Gives `batches`, one a time; of what no record is left its position says that it was passed."""

    def __init__(self, batches: Sequence[Sequence[Record]], positions: dict[int, int]) -> None:
        self._batches: Iterator[Sequence[Record]] = iter(batches)
        self._positions, self.closed = positions, False
        self.assigned: list[tuple[int, int]] = []

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = [(place.partition, place.offset) for place in places]

    def consume(self, count: int, seconds: float) -> Sequence[Record]:
        return next(self._batches, [])

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self._positions.get(p.partition, -1001)) for p in places]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def consumer_of(monkeypatch):
    def given(batches: Sequence[Sequence[Record]] = (), positions: dict[int, int] | None = None) -> Consumer:
        made = Consumer(batches, positions or {})
        monkeypatch.setattr(record_reader, "consumer_client", lambda properties, group: made)
        return made

    return given


def read(starts: dict[int, int], ends: dict[int, int]) -> list[tuple[int, int]]:
    places = {("orders.dlq", partition): start for partition, start in starts.items()}
    until = {("orders.dlq", partition): end for partition, end in ends.items()}
    return [(r.partition() or 0, r.offset() or 0) for r in record_reader.read_records(SETTINGS, places, until)]


def test_each_partition_is_read_from_its_start_and_below_its_end(consumer_of):
    client = consumer_of([[Record(0, 3), Record(1, 7)], [Record(0, 4), Record(0, 5)]])
    assert read({0: 3, 1: 7}, {0: 5, 1: 8}) == [(0, 3), (1, 7), (0, 4)]
    assert client.assigned == [(0, 3), (1, 7)]
    assert client.closed


def test_what_holds_nothing_is_not_asked_for(consumer_of):
    client = consumer_of()
    assert read({0: 3}, {0: 3}) == []
    assert not client.assigned


def test_what_was_compacted_away_is_not_waited_for(consumer_of):
    consumer_of([[Record(0, 3)]], positions={0: 9})
    assert read({0: 3}, {0: 9}) == [(0, 3)]


def test_an_error_in_place_of_a_record_is_none(consumer_of):
    consumer_of([[Record(0, 3, fault="no leader")], [Record(0, 3)]])
    assert read({0: 3}, {0: 4}) == [(0, 3)]


def test_a_kafka_that_falls_silent_is_given_up(consumer_of, monkeypatch):
    client = consumer_of()
    monkeypatch.setattr(record_reader, "SILENCE", -1.0)
    with pytest.raises(KafkaUnavailable, match=r"Kafka gives no records of orders\.dlq"):
        read({0: 3}, {0: 4})
    assert client.closed


def letter(partition: int, offset: int, group: str = "bridge", topic: str = "orders") -> Record:
    delivery = Delivery(Message(topic, 0, offset, origin="c g log"), "work")
    return Record(partition, offset, dead_letter_headers(delivery, Dead("permanent", Failure("E", "m", "", 1)), group))


def letters(monkeypatch, extents: list[Extent], **asked: Any) -> tuple[list[int], bool]:
    monkeypatch.setattr(dead_letter_reader, "read_extents", lambda settings, topics: extents)
    found = dead_letter_reader.read_dead_letters(SETTINGS, "orders", **asked)
    return [each.whose.offset for each in found.letters], found.whole


def extent(partition: int, first: int, end: int) -> Extent:
    return Extent("orders.dlq", partition, first, end, None)


def test_dead_letters_are_those_of_the_group_and_the_topic(consumer_of, monkeypatch):
    consumer_of([[letter(0, 0), letter(0, 1, group="other"), letter(0, 2, topic="others"), Record(0, 3), letter(0, 4)]])
    assert letters(monkeypatch, [extent(0, 0, 5)]) == ([0, 4], True)


def test_the_last_ones_are_read(consumer_of, monkeypatch):
    client = consumer_of([[letter(0, 8), letter(0, 9)]])
    assert letters(monkeypatch, [extent(0, 0, 10)], last=2) == ([8, 9], True)
    assert client.assigned == [(0, 8)]


def test_what_kafka_has_dropped_is_not_the_whole(consumer_of, monkeypatch):
    consumer_of([[letter(0, 4)]])
    assert letters(monkeypatch, [extent(0, 4, 5)]) == ([4], False)


def latest(monkeypatch, count: int, partition: int) -> list[int]:
    extents = [extent(number, 0, 9) for number in range(count)]
    monkeypatch.setattr(dead_letter_reader, "read_extents", lambda settings, topics: extents)
    found = dead_letter_reader.read_latest_of_partition(SETTINGS, "orders", partition, 6)
    return [each.whose.offset for each in found]


def test_letters_of_a_partition_are_also_read_where_they_were_written_before_their_topic_grew(consumer_of, monkeypatch):
    client = consumer_of([[letter(number, 8) for number in (0, 1, 2, 5)]])
    assert latest(monkeypatch, 8, 5) == [8] * 4
    # The earlier partitions share the bound of the present one: a search reads at most twice as many records.
    assert client.assigned == [(0, 7), (1, 7), (2, 7), (5, 3)]


def test_no_partition_is_read_that_never_had_a_letter_of_the_wanted_one(consumer_of, monkeypatch):
    """A dead-letter topic with fewer partitions than its source has those of several in one."""
    client = consumer_of([[letter(0, 8), letter(1, 8)]])
    latest(monkeypatch, 3, 3)
    assert client.assigned == [(0, 3), (1, 3)]


def test_a_topic_that_is_not_there_has_no_dead_letters(consumer_of, monkeypatch):
    consumer_of()
    assert letters(monkeypatch, []) == ([], True)
    assert latest(monkeypatch, 0, 3) == []


class Log:
    """A consumer of one partition without gaps, with a record of ten bytes at each offset."""

    def __init__(self, end: int, moves: Any = None) -> None:
        self._end, self._at, self._moves = end, 0, moves
        self.assigned: list[int] = []

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = places[0].offset
        self.assigned.append(self._at)

    def consume(self, count: int, seconds: float) -> list[Record]:
        found = [Ten(0, offset) for offset in range(self._at, min(self._at + count, self._end))]
        self._at += len(found)
        return [*found]

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, self._at) for place in places]

    def close(self) -> None:
        """It holds nothing."""


class Ten(Record):
    def value(self) -> bytes:
        return b"0123456789"


def backwards(monkeypatch, limits: record_reader.ReadLimits, wanted: Any = lambda record: True, first: int = 0):
    """The windows that a backward reader gives of a log of 3,000 records, and how far it came."""
    log = Log(3_000)
    monkeypatch.setattr(record_reader, "consumer_client", lambda properties, group: log)
    budget = record_reader.ReadBudget(limits, clock=lambda: 0.0)
    place = ("orders.dlq", 0)
    with record_reader.BackwardReader(SETTINGS, budget) as reader:
        windows = [*reader.read_windows({place: first}, {place: 3_000}, wanted)]
    return [[record.offset() or 0 for record in window] for window in windows], reader.searched[place], budget.reached


def test_a_log_is_read_backwards_by_windows_that_grow_and_no_record_twice(monkeypatch):
    windows, searched, reached = backwards(monkeypatch, record_reader.UNLIMITED)
    assert [len(window) for window in windows] == [100, 400, 1_600, 900]
    assert [window[0] for window in windows] == [2_900, 2_500, 900, 0]
    assert sorted(offset for window in windows for offset in window) == [*range(3_000)]
    assert (searched, reached) == (0, "")
    assert backwards(monkeypatch, record_reader.UNLIMITED, first=2_950)[:2] == ([[*range(2_950, 3_000)]], 2_950)


def test_a_limit_ends_a_search_with_what_it_found_and_what_it_read_without_a_gap(monkeypatch):
    limits = record_reader.ReadLimits(700, float("inf"), float("inf"))
    windows, searched, reached = backwards(monkeypatch, limits, lambda record: record.offset() in (2_999, 950, 10))
    assert (windows, searched, reached) == ([[2_999], [], [950]], 2_500, "700 records")


def test_each_limit_has_its_words():
    clock = iter((0.0, 15.0))
    assert record_reader.ReadBudget(record_reader.ReadLimits(1, 1, 15), lambda: next(clock)).reached == "15 seconds"
    budget = record_reader.ReadBudget(record_reader.ReadLimits(9, 2e7, 9), lambda: 0.0)
    assert budget.reached == ""
    for offset in range(9):
        budget.spend(Ten(0, offset))  # type: ignore[arg-type]
    assert budget.reached == "9 records"
    assert record_reader.ReadBudget(record_reader.ReadLimits(1, 0, 1)).reached == "0 MB"
