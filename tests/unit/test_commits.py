"""Commits that are waited for, and answers that come late."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bridge import commits
from bridge.commits import Commits
from bridge.errors import LedgerNotSynced
from bridge.kafka import TopicPartition
from bridge.metrics import BridgeMetrics

PLACE = ("orders", 0)


class Slow:
    """A consumer whose Kafka answers a waiting commit when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.stored: list[TopicPartition] = []

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += offsets

    def commit(self, asynchronous: bool) -> list[TopicPartition] | None:
        if asynchronous:
            return None
        self.answers.wait(10)
        return self.stored


class Assigned(dict[Any, Any]):
    """One partition, committed at 3, safe up to 7."""

    def __init__(self) -> None:
        super().__init__({PLACE: None})
        self.partitions = [SimpleNamespace(place=PLACE, safe=lambda: 7)]
        self.committed = {PLACE: 3}


def test_a_commit_that_kafka_does_not_answer_is_not_waited_for_and_its_late_answer_counts(monkeypatch):
    monkeypatch.setattr(commits, "COMMIT_WITHIN", 0.05)
    assigned: Any = Assigned()
    consumer: Any = Slow()
    made = Commits(assigned, None, False, BridgeMetrics())
    assert made.commit(consumer, set(), wait=True) is None
    assert assigned.committed == {PLACE: 3}
    consumer.answers.set()
    assert made._late is not None
    made._late.result(10)
    made.commit(consumer, set(), wait=False)
    assert assigned.committed == {PLACE: 7}


def test_a_slow_disk_delays_the_commit_and_nothing_else(caplog: pytest.LogCaptureFixture):
    class Ledger:
        def fsync(self, seconds: float) -> None:
            raise LedgerNotSynced("not on disk yet")

    assigned: Any = Assigned()
    consumer: Any = Slow()
    ledger: Any = Ledger()
    made = Commits(assigned, ledger, True, BridgeMetrics())
    for _ in range(3):
        assert made.commit(consumer, set(), wait=False) is None
    assert (consumer.stored, assigned.committed) == ([], {PLACE: 3})
    assert caplog.text.count("nothing is committed until this is mended") == 1
