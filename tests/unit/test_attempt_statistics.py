"""Counting costs deliveries nothing: it waits for others, is bounded, and its faults end where they are."""

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from bridge.dispatch import dispatcher
from bridge.dispatch.dispatcher import ReplayCounter
from bridge.errors import LedgerUnavailable
from bridge.kafka.topic_names import TopicNames
from bridge.ledger.delivery_counts import CountKey, DurationKey, Durations
from tasks.worker import ledger_telemetry as module
from tasks.worker.ledger_telemetry import DeliveryCounts

LEDGER: Any = "a ledger"


class Kept:
    """What was written, and the timers that would write it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[dict[CountKey, int]] = []
        self.durations: list[dict[DurationKey, Mapping[int, int]]] = []
        self.timers: list[Any] = []
        self.now = 600.0
        self.error: Exception | None = None
        for each in (module, dispatcher):
            monkeypatch.setattr(each, "add_counts", self.count)
        self.threads = True
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(threading, "Timer", self.timer)
        self.counts = DeliveryCounts()

    def count(self, ledger: Any, found: Mapping[CountKey, int], durations: Durations = MappingProxyType({})) -> None:
        if self.error:
            raise self.error
        self.written.append({**found})
        self.durations.append({**durations})

    def timer(self, seconds: float, act: Any) -> Any:
        timer = threading.Thread(target=act)
        timer.start = lambda: self.start(act)  # type: ignore[method-assign]
        return timer

    def start(self, act: Any) -> None:
        if not self.threads:
            raise RuntimeError("can't start new thread")
        self.timers.append(act)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def test_counts_wait_for_one_another_and_go_in_one_trip(kept: Kept) -> None:
    for number in (1, 200):
        kept.counts.add(LEDGER, "orders", "charge", "handled", number)
    kept.now = 660.0
    kept.counts.add(LEDGER, "orders", "charge", "failed")
    assert kept.written == []
    (write,) = kept.timers
    write()
    assert kept.written == [
        {CountKey("orders", "charge", "handled", 10): 201, CountKey("orders", "charge", "failed", 11): 1}
    ]
    kept.counts.flush()
    assert len(kept.written) == 1
    kept.counts.add(LEDGER, "orders", "charge", "dead")
    assert len(kept.timers) == 2


def test_durations_of_runs_are_written_with_their_counts(kept: Kept) -> None:
    kept.counts.add(LEDGER, "orders", "charge", "handled", 3, (0.0001, 0.06, 0.06))
    kept.counts.add(LEDGER, "orders", "charge", "failed", 1, (0.06,))
    (write,) = kept.timers
    write()
    assert kept.durations == [{DurationKey("orders", "charge", 10): {0: 1, 11: 3}}]


def test_counts_that_no_thread_could_be_started_for_are_written_with_the_next(kept: Kept) -> None:
    kept.threads = False
    kept.counts.add(LEDGER, "orders", "charge", "handled", 5)
    kept.threads = True
    kept.counts.add(LEDGER, "orders", "charge", "handled", 2)
    (write,) = kept.timers
    write()
    assert kept.written == [{CountKey("orders", "charge", "handled", 10): 7}]


def test_without_a_ledger_nothing_is_kept(kept: Kept) -> None:
    kept.counts.add(None, "orders", "charge", "handled")
    assert kept.timers == []


@pytest.mark.parametrize("error", [LedgerUnavailable("no answer"), ZeroDivisionError()])
def test_a_ledger_that_does_not_take_them_costs_the_counts_alone(kept: Kept, error: Exception) -> None:
    kept.counts.add(LEDGER, "orders", "charge", "handled")
    kept.error = error
    kept.counts.flush()
    kept.error = None
    kept.counts.flush()
    assert kept.written == []


def test_a_process_that_is_forked_writes_none_of_its_parents_counts(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.counts.add(LEDGER, "orders", "charge", "handled", 5)
    monkeypatch.setattr("os.getpid", lambda: -1)
    kept.counts.add(LEDGER, "orders", "charge", "handled", 2)
    kept.counts.flush()
    assert kept.written == [{CountKey("orders", "charge", "handled", 10): 2}]


def test_of_replay_topics_it_is_counted_what_goes_to_handlers_that_there_are(kept: Kept) -> None:
    made = ReplayCounter(LEDGER, TopicNames("bridge"), ["orders"], ["charge"], lambda: 600.0)
    for topic, handler in (("orders.replay", "charge"), ("orders", "charge"), ("orders.replay", "\x00hostile")):
        made.count_handoff(topic, handler, 4)
    made.write_counts()
    made.write_counts()
    assert kept.written == [{CountKey("orders", "charge", "replayed", 10): 4}]
    kept.error = LedgerUnavailable("no answer")
    made.count_handoff("orders.replay", "charge", 1)
    made.write_counts()
