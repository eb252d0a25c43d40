"""Commits that are waited for, and answers that come late."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer import offset_commits
from bridge.consumer.offset_commits import OffsetCommits
from bridge.errors import KafkaUnavailable, LedgerNotSynced
from bridge.kafka.clients import KafkaError, KafkaException, TopicPartition
from bridge.ledger import KnownLog

PLACE = ("orders", 0)


class Slow:
    """A consumer whose Kafka answers a waiting commit when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.stored: list[TopicPartition] = []
        self.sent: list[TopicPartition] = []
        self.taken_away = False

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        if self.taken_away:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.stored += offsets

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        self.sent += offsets
        if asynchronous:
            return None
        self.answers.wait(10)
        return offsets


class Assigned(dict[Any, Any]):
    """One partition, committed at 3, safe up to 7."""

    def __init__(self) -> None:
        super().__init__({PLACE: None})
        self.partitions = [SimpleNamespace(place=PLACE, safe=lambda: 7)]
        self.committed = {PLACE: 3}
        self.logs = {PLACE: KnownLog("id", 2)}

    def epoch_below(self, place: Any, offset: int) -> int:
        return 4

    def find_commit_mode(self, place: Any) -> str:
        return "handoff"


class Reassigned(Slow):
    """A consumer whose group (KIP-848) has had a new assignment before the first commits."""

    def __init__(self, stale: int) -> None:
        super().__init__()
        self.stale = stale
        self.answers.set()

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        if self.stale:
            self.stale -= 1
            raise KafkaException(KafkaError(KafkaError.STALE_MEMBER_EPOCH))
        return super().commit(offsets, asynchronous)


def test_a_last_commit_with_an_epoch_that_is_over_is_tried_again_at_once(monkeypatch):
    monkeypatch.setattr(offset_commits, "STALE_PAUSE", 0.001)
    assigned: Any = Assigned()
    consumer: Any = Reassigned(2)
    commits = OffsetCommits(assigned, None, False, BridgeMetrics())
    commits.commit(consumer, set(), wait=True)
    assert assigned.committed == {PLACE: 7}


@pytest.mark.parametrize("code", [KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH])
def test_a_refused_commit_counts_as_none_and_is_made_again(code: int):
    assigned: Any = Assigned()
    consumer: Any = Slow()
    commits = OffsetCommits(assigned, None, False, BridgeMetrics())
    for _ in range(2):
        commits.commit(consumer, set(), wait=False)
        assert not commits.take_answer(KafkaError(code), consumer.sent[-1:])
        assert assigned.committed == {PLACE: 3}
    assert [each.offset for each in consumer.sent] == [7, 7]


def test_a_commit_that_kafka_does_not_answer_is_not_waited_for_and_its_late_answer_counts(monkeypatch):
    monkeypatch.setattr(offset_commits, "COMMIT_WITHIN", 0.05)
    assigned: Any = Assigned()
    consumer: Any = Slow()
    made = OffsetCommits(assigned, None, False, BridgeMetrics())
    assert made.commit(consumer, set(), wait=True) is None
    assert assigned.committed == {PLACE: 3}
    consumer.answers.set()
    assert made._late_answer is not None
    made._late_answer.result(10)
    made.commit(consumer, set(), wait=False)
    assert assigned.committed == {PLACE: 7}


def test_a_slow_disk_delays_the_commit_and_nothing_else(caplog: pytest.LogCaptureFixture):
    class Ledger:
        def fsync(self, seconds: float) -> None:
            raise LedgerNotSynced("not on disk yet")

    assigned: Any = Assigned()
    consumer: Any = Slow()
    ledger: Any = Ledger()
    made = OffsetCommits(assigned, ledger, True, BridgeMetrics())
    for _ in range(3):
        assert made.commit(consumer, set(), wait=False) is None
    assert (consumer.stored, assigned.committed) == ([], {PLACE: 3})
    assert caplog.text.count("nothing is committed until this is fixed") == 1


def test_a_commit_says_which_log_it_is_of_its_mode_and_which_leader_epoch_wrote_what_lies_below():
    assigned: Any = Assigned()
    consumer: Any = Slow()
    OffsetCommits(assigned, None, False, BridgeMetrics()).commit(consumer, set(), wait=False)
    (sent,) = consumer.sent
    assert (sent.offset, sent.metadata, sent.leader_epoch) == (7, "log=id.2 commit=handoff", 4)


def test_what_is_another_bridges_now_is_not_committed_by_name():
    assigned: Any = Assigned()
    consumer: Any = Slow()
    consumer.taken_away = True
    made = OffsetCommits(assigned, None, False, BridgeMetrics())
    made.commit(consumer, set(), wait=False)
    with pytest.raises(KafkaUnavailable, match="no longer ours"):
        made.move(consumer, PLACE, 1)
    assert consumer.sent == []


def test_a_commit_goes_back_where_the_log_did_and_only_an_answer_counts(monkeypatch):
    monkeypatch.setattr(offset_commits, "COMMIT_WITHIN", 0.05)
    assigned: Any = Assigned()
    consumer: Any = Slow()
    made = OffsetCommits(assigned, None, False, BridgeMetrics())
    with pytest.raises(KafkaUnavailable, match="orders-0"):
        made.move(consumer, PLACE, 1)
    assert assigned.committed == {PLACE: 3}
    consumer.answers.set()
    made.move(consumer, PLACE, 1)
    assert assigned.committed == {PLACE: 1}
