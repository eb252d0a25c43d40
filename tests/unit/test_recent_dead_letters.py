"""Who looks again and again at the latest dead letters reads each of them once."""

from types import SimpleNamespace

import pytest

from bridge.errors import KafkaUnavailable
from bridge.formats import dead_letter_record
from bridge.formats.dead_letter_record import DeadLetterKey, DeadLetterSummary
from bridge.kafka import dead_letter_reader
from bridge.kafka.dead_letter_reader import KEPT_FOR, MOST_RECENT, RecentDeadLetters
from bridge.kafka.partition_offsets import Extent
from bridge.settings import Settings
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings

SETTINGS = Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP="shop"), "memory://", {})


class Log:
    """Two partitions of `orders.dlq`, and what was read of them."""

    def __init__(self):
        self.first, self.end, self.read, self.fails = [0, 0], [0, 0], [], False

    @property
    def there(self):
        return [Extent("orders.dlq", at, self.first[at], self.end[at], None) for at in (0, 1)]

    def records(self, _settings, starts, ends):
        for (topic, partition), start in starts.items():
            for offset in range(start, ends[topic, partition]):
                self.read.append((partition, offset))
                place = {"topic": topic, "partition": partition, "offset": offset}
                yield SimpleNamespace(**{name: lambda value=value: value for name, value in place.items()})
                if self.fails:
                    raise KafkaUnavailable


@pytest.fixture
def log(monkeypatch):
    made = Log()
    monkeypatch.setattr(dead_letter_reader, "read_records", made.records)
    monkeypatch.setattr(dead_letter_record, "read_dead_letter_summary", letter)
    return made


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def kept(now):
    return RecentDeadLetters(SETTINGS, lambda: now[0])


def letter(record):
    """Each third is another group's."""
    group = "shop" if record.offset() % 3 else "bank"
    place = f"{record.topic()}-{record.partition()}-{record.offset()}"
    whose = DeadLetterKey(record.partition(), record.offset(), "charge")
    return DeadLetterSummary(place, "orders", whose, group, 1, None, "exhausted", "x" * 900, 1.0)


def found(kept, log, topic="orders"):
    return [(each.whose.partition, each.whose.offset) for each in kept.read_latest(topic, log.there).letters]


def ours(partition, start, end):
    return [(partition, offset) for offset in range(start, end) if offset % 3]


def test_what_was_read_is_not_read_again_and_what_is_new_is(log, kept):
    log.end = [5, 2]
    assert found(kept, log) == [*ours(0, 0, 5), *ours(1, 0, 2)]
    log.read.clear()
    assert found(kept, log) == [*ours(0, 0, 5), *ours(1, 0, 2)]
    assert log.read == []
    log.end = [5, 4]
    assert found(kept, log) == [*ours(0, 0, 5), *ours(1, 0, 4)]
    assert log.read == [(1, 2), (1, 3)]


def test_of_each_partition_the_latest_are_kept_and_it_is_said_that_there_are_more(log, kept):
    log.end = [MOST_RECENT, 0]
    assert not kept.read_latest("orders", log.there).more
    log.end = [MOST_RECENT + 100, 0]
    assert found(kept, log) == ours(0, 100, MOST_RECENT + 100)
    assert len(log.read) == MOST_RECENT + 100
    assert kept.read_latest("orders", log.there).more
    # Kafka has dropped some.
    log.first = [500, 0]
    assert found(kept, log) == ours(0, 500, MOST_RECENT + 100)
    # So many came at once that none of what was kept is among the latest.
    log.end = [10 * MOST_RECENT, 0]
    assert found(kept, log) == ours(0, 9 * MOST_RECENT, 10 * MOST_RECENT)


@pytest.mark.parametrize("made_anew", [([0, 0], [3, 0]), ([0, 0], [7, 0])])
def test_a_log_that_begins_anew_is_read_anew(log, kept, made_anew):
    log.first, log.end = [4, 0], [9, 0]
    assert found(kept, log) == ours(0, 4, 9)
    log.read.clear()
    log.first, log.end = made_anew
    assert found(kept, log) == ours(0, 0, log.end[0])
    assert len(log.read) == log.end[0]


def test_after_a_while_all_is_read_anew(log, kept, now):
    log.end = [5, 0]
    found(kept, log)
    now[0] += KEPT_FOR
    log.read.clear()
    assert found(kept, log) == ours(0, 0, 5)
    assert len(log.read) == 5


def test_what_was_being_read_as_kafka_went_silent_is_read_again(log, kept):
    log.end, log.fails = [5, 0], True
    with pytest.raises(KafkaUnavailable):
        found(kept, log)
    log.fails = False
    assert found(kept, log) == ours(0, 0, 5)


def test_of_each_letter_little_is_kept_and_topics_that_share_one_for_their_dead_letters_have_their_own(log, kept):
    log.end = [3, 0]
    assert {len(each.error) for each in kept.read_latest("orders", log.there).letters} == {300}
    assert found(kept, log, "mails") == []
    assert found(kept, log) == ours(0, 0, 3)
