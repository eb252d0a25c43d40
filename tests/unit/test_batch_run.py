"""A batch in the worker: every delivery has a fate of its own, whatever its neighbours do."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery.app.trace import LOG_SUCCESS
from celery.exceptions import Reject, Retry
from kombu import Queue
from kombu.exceptions import OperationalError

from bridge.errors import LedgerUnavailable, PublishFailed, RecordTooLarge
from bridge.formats.celery_header import HEADER, from_header, to_header
from bridge.formats.delivery import NO_ATTEMPTS, Attempts, Batch, Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.halt_scope import HaltScope
from bridge.formats.outbox import OutgoingMessage
from bridge.formats.retry_record import RetryRecordPosition
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.kafka.retry_placement import TierWaits
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Account, Fate, Mark
from bridge.ledger.breaker_state import BreakerStatus
from bridge.ledger.handler_costs import DeliveryCost
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from lossless.worker.run_outcome import ComeBack
from tasks import Breaker, DeadLetter, RetryLater, StopConsuming, app, handler, logs
from tasks.declaration.celery_defaults import make_quorum_queue
from tasks.errors import DeadLettered, RegistryDown, TopicHalted
from tasks.execution import (
    batch_run,
    handler_attempt,
    message_resend,
    outgoing_publication,
    redis_clock,
    retry_schedule,
)
from tasks.execution.batch_fates import FINAL_FATES, BatchFates
from tasks.execution.batch_telemetry import BatchTelemetry
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.retry_schedule import RetryParker
from tasks.policy.effective_decisions import DecisionCache
from tasks.worker import worker_metrics
from tests.memory_ledger import MemoryLedger

ran: list[int] = []


class BankAway(Exception):
    """Passes."""


@handler("orders", name="unit.charge", codec=int, batch=9, max_retries=1, retry_jitter=False, retry_backoff=4)
def charge(number: int, message: Message) -> str:
    ran.append(number)
    if 60 <= number < 70:
        message.publish("invoices", {"of": number})
    if number < 0:
        raise BankAway
    if number > 100:
        raise DeadLetter("too much")
    if number == 77:
        raise StopConsuming("the bank is on fire")
    if number == 78:
        raise RetryLater(30)
    return f"charged {number}"


#: In a retry topic, and not due.
LIES = RetryRecordPosition("orders.retry.5m", 0, 3, passed=False)


class FakeBook:
    """The ledger, as far as a batch sees it."""

    def __init__(self, settled: set[int]) -> None:
        self.ledger = None
        self.fates = dict.fromkeys(settled, Fate.DONE)
        self.unwritten: dict[int, Fate] = {}
        self.discarded: set[int] = set()
        self.silent = self.holds_dead = False
        self.tasks: list[tuple[str, list[int]]] = []

    def settled(self, offsets: list[int]) -> set[int]:
        return {offset for offset in offsets if offset in self.fates}

    def done(self, offset: int, *, now: bool = False) -> None:
        self.unwritten[offset] = Fate.DONE
        if now:
            self.flush()

    def mark(self, offset: int, fate: Fate) -> None:
        self.unwritten[offset] = fate
        self.flush()

    def mark_all(self, offsets: list[int], fate: Fate) -> None:
        self.unwritten.update(dict.fromkeys(offsets, fate))
        self.flush()

    def is_discarded(self, offset: int) -> bool:
        return self.fates.get(offset) is Fate.DISCARDED

    def find_finished(self, offsets: list[int]) -> set[int]:
        final = FINAL_FATES - {Fate.DEAD} if self.holds_dead else FINAL_FATES
        return {offset for offset in offsets if self.fates.get(offset) in final}

    def find_holding(self, deliveries: Iterable[Delivery], left: Iterable[Delivery]) -> list[Delivery]:
        return BatchFates.find_holding(cast("BatchFates", self), deliveries, left)

    def give_up_ledger(self) -> None:
        self.given_up = True

    def flush(self, patience: float | None = None) -> None:
        if self.silent and self.unwritten:
            raise LedgerUnavailable("no answer")
        self.fates.update(self.unwritten)
        self.unwritten.clear()

    def find_wipe(self, message: Message) -> float | None:
        return None

    def note_task(self, task_id: str, offsets: list[int]) -> None:
        self.tasks.append((task_id, offsets))

    def note_single_task(self, offset: int) -> None:
        """Told of apart: see test_ledger_telemetry.py."""


class World:
    """What a run of a batch has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.letters: list[tuple[int, str]] = []
        self.published: list[str] = []
        self.sent: list[tuple[float, list[int]]] = []
        self.held: list[tuple[str, list[int]]] = []
        self.batches: list[Batch] = []
        self.pasts: list[dict[str, Any]] = []
        self.most = 0
        self.kafka_down = self.too_large = False
        self.clones: list[ParkRequest] = []
        #: How many handlers had run when so many messages of theirs were given to Kafka.
        self.given: list[tuple[int, int]] = []
        self.there: set[tuple[str, int]] = set()
        self.tiers: tuple[int, ...] | None = None
        self.retries = self
        self.book = FakeBook(set())
        monkeypatch.setattr(BatchFates, "for_batch", lambda app, batch: self.book)
        monkeypatch.setattr(Publisher, "get_publisher", lambda app: self)
        monkeypatch.setattr(retry_schedule, "send_on", self.send_on)
        ran.clear()

    def dead_letter(self, delivery: Delivery, dead: Any, group: str) -> None:
        if self.kafka_down:
            raise PublishFailed("Kafka is away")
        self.letters.append((delivery.message.offset, dead.reason))

    def send(self, outgoing: Any) -> list[PublishFailed | None]:
        self.given.append((len(ran), len(outgoing)))
        if self.kafka_down:
            return [PublishFailed("Kafka is away") for _ in outgoing]
        self.published += [each.id for _, each in outgoing]
        return [None for _ in outgoing]

    def has_dead_letter(self, delivery: Delivery, group: str, written_before: float | None = None) -> bool:
        return any(offset == delivery.message.offset for offset, _ in self.letters)

    def usable(self, source: str, delays: Any, group: str) -> tuple[int, ...]:
        return tuple(delays) if self.tiers is None else self.tiers

    def park(self, clones: list[ParkRequest], group: str) -> list[PublishFailed | None]:
        if self.kafka_down:
            return [PublishFailed("Kafka is away") for _ in clones]
        if self.too_large:
            return [RecordTooLarge("too large") for _ in clones]
        self.clones += clones
        return [None for _ in clones]

    def parked_in(
        self, deliveries: Any, delays: Any, group: str, written_before: float | None = None
    ) -> list[list[RetryRecordPosition]]:
        return [[LIES] if (delivery.identity, delivery.number) in self.there else [] for delivery in deliveries]

    def send_on(
        self,
        app: Any,
        batch: Batch,
        delay: float,
        delivery_info: Any,
        most: int = 1,
        past: Any = None,
        held: str = "",
    ) -> None:
        self.sent.append((delay, batch.offsets))
        if held:
            self.held.append((held, batch.offsets))
        self.pasts.append(dict(past or {}))
        self.batches.append(batch)
        self.most = most

    def run(self, *values: int, keys: list[bytes] | None = None, order: str | None = None, **headers: Any) -> Any:
        deliveries = tuple(
            Delivery(
                Message("orders", 0, offset, key=keys[offset] if keys else None, value=b"%d" % value), "unit.charge"
            )
            for offset, value in enumerate(values)
        )
        return self.run_batch(Batch("unit.charge", "orders", 0, deliveries, order=order), **headers)

    def made(self, *values: int) -> Batch:
        made = [
            Delivery(Message("orders", 0, offset, value=b"%d" % value), "unit.charge")
            for offset, value in enumerate(values)
        ]
        return Batch("unit.charge", "orders", 0, tuple(made))

    def comes_back(self, *values: int) -> Batch:
        return self.comes_back_from(self.made(*values))

    def comes_back_from(self, batch: Batch) -> Batch:
        """Run a batch that cannot be brought to its end; what comes back in its place."""
        with pytest.raises(ComeBack) as caught:
            self.run_batch(batch)
        return from_header("unit.charge", json.loads(json.dumps(caught.value.headers[HEADER])))

    def run_batch(self, batch: Batch, **headers: Any) -> Any:
        header = to_header(batch)
        assert from_header(batch.handler, header) == batch
        task: Any = app.tasks[batch.handler]
        task.push_request(headers={HEADER: header, **headers}, called_directly=False, delivery_info={}, id="x")
        try:
            return batch_run.run_batch(task, header)
        finally:
            task.pop_request()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_one_that_fails_leaves_its_batch_and_its_neighbours_are_done(world: World) -> None:
    assert world.run(1, -2, 3) == "2 done, 1 again; again: orders-0-1"
    assert world.book.fates == {0: Fate.DONE, 2: Fate.DONE}
    assert world.sent == [(4, [1])]


def test_a_message_of_a_batch_costs_few_calls(world: World) -> None:
    """No option that a handler leaves alone adds to them: a microsecond a message is 2 % of the throughput."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def run(number: int) -> int:
        nonlocal calls
        world.book.fates.clear()
        header, task = to_header(world.made(*range(1, number + 1))), cast("Any", charge)
        task.push_request(headers={HEADER: header}, called_directly=False, delivery_info={}, id="x")
        calls = 0
        sys.setprofile(count)
        try:
            batch_run.run_batch(task, header)
        finally:
            sys.setprofile(None)
            task.pop_request()
        return calls

    run(1)
    assert (run(50) - run(25)) / 25 < 61
    assert run(1) < 216, "of one alone in its message"


def test_what_a_task_takes_once_is_told_apart_from_what_each_delivery_adds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[DeliveryCost] = []
    monkeypatch.setattr("tasks.worker.delivery_cost.note_cost", lambda ledger, name, cost, at_once: told.append(cost))

    def slow(seconds: float, act: Any) -> Any:
        def act_slowly(*given: Any) -> Any:
            time.sleep(seconds)
            return act(*given)

        return act_slowly

    monkeypatch.setattr(world.book, "settled", slow(0.05, world.book.settled))
    monkeypatch.setattr(world, "dead_letter", slow(0.2, world.dead_letter))
    world.run(1, 2)
    assert told[0].beside >= told[0].once >= 0.05 > told[0].one_more
    world.book.fates.clear()
    with pytest.raises(DeadLettered):
        world.run(1, 101)
    assert told[1].once >= 0.05
    assert told[1].one_more >= 0.2 / 2


def test_those_that_are_due_together_are_retried_together(world: World) -> None:
    world.run(-1, 2, -3)
    assert world.sent == [(4, [0, 2])]


@pytest.mark.parametrize(("batch", "within", "most"), [(9, 0.05, 9), ("auto", 1e-9, 3), ("auto", 1e9, 500)])
def test_they_travel_with_those_of_other_batches_as_many_as_a_batch_may_have(
    world: World, monkeypatch: pytest.MonkeyPatch, batch: Any, within: float, most: int
) -> None:
    monkeypatch.setattr(charge, "batch", batch)
    monkeypatch.setattr(retry_schedule, "PART_WITHIN", within)
    world.run(-1, 2, -3)
    assert world.most == most


def test_a_retry_that_fails_again_is_dead_and_only_then_marked(world: World) -> None:
    world.run(-1, 2, -3)
    again = world.batches[0]
    assert [delivery.attempts.failed for delivery in again.deliveries] == [1, 1]
    with pytest.raises(DeadLettered, match=r"2 dead; the first of the dead: exhausted.*; dead: orders-0-0 orders-0-2$"):
        world.run_batch(again)
    assert world.letters == [(0, "exhausted"), (2, "exhausted")]
    assert world.book.fates == {0: Fate.DEAD, 1: Fate.DONE, 2: Fate.DEAD}


def test_what_has_one_attempt_dies_of_its_failure_and_its_neighbours_are_retried(world: World) -> None:
    batch = world.made(-1, -2, 3, 78)
    once = [replace(each, once=each.message.offset in (0, 3)) for each in batch.deliveries]
    with pytest.raises(DeadLettered, match=r"1 dead, 1 done, 2 again; the first of the dead: exhausted.*BankAway"):
        world.run_batch(batch.holding(once))
    assert world.letters == [(0, "exhausted")]
    assert sorted(world.sent) == [(4, [1]), (30, [3])]
    # Put off, it has its one attempt still, and no more.
    (later,) = [each for each in world.batches if each.offsets == [3]]
    (put_off,) = later.deliveries
    failing = replace(put_off, message=replace(put_off.message, value=b"-1"))
    with pytest.raises(DeadLettered, match="exhausted"):
        world.run_batch(later.holding([failing]))


def test_what_has_one_attempt_and_lost_its_process_runs_again_alone(world: World) -> None:
    batch = world.made(1, 2)
    once = [replace(each, once=True) for each in batch.deliveries]
    world.run_batch(batch.holding([once[0], once[1].lost(1)]), lost=1)
    assert (world.sent, world.letters) == ([(0, [0]), (0, [1])], [])
    world.run_batch(world.batches[1], lost=1)
    assert world.book.fates == {1: Fate.DONE}


def test_what_retry_when_answers_is_done_with_its_own_words_in_the_dead_letter(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def when(message: Message, error: Exception, attempts: Any) -> Any:
        seen.append((message.offset, type(error), attempts.failed))
        return {b"-1": 7, b"-2": DeadLetter("gone for good"), b"-3": "soon"}.get(message.value or b"")

    monkeypatch.setattr(charge, "policy", replace(charge.policy, retry_when=when))
    with pytest.raises(DeadLettered, match=r"permanent: .*BankAway: gone for good"):
        world.run(-1, -2, -3, -4, 5)
    assert sorted(world.sent) == [(4, [2, 3]), (7, [0])]
    assert world.letters == [(1, "permanent")]
    assert seen == [(offset, BankAway, 0) for offset in range(4)]
    (line,) = [line for line in caplog.messages if "retry_when gave no valid answer" in line]
    assert line.startswith("orders-0-2:unit.charge: ")
    assert "its answer was a str" in line


def test_a_process_that_is_ended_while_retry_when_runs_settles_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_to_end(message: Message, error: Exception, attempts: Any) -> Any:
        monkeypatch.setattr(handler_attempt, "terminate_handler_fired", lambda: True)
        raise SystemExit

    monkeypatch.setattr(charge, "policy", replace(charge.policy, retry_when=told_to_end))
    with pytest.raises(SystemExit):
        world.run(1, -2)
    assert (world.letters, world.sent) == ([], [])
    assert world.book.fates == {0: Fate.DONE}


def test_what_is_settled_is_not_run_again(world: World) -> None:
    world.book = FakeBook({0, 2})
    world.run(1, 2, 3)
    assert ran == [2]


@pytest.mark.parametrize("discarded", [{0}, set()])
def test_a_line_of_a_success_says_that_the_handler_did_not_run(
    world: World, caplog: pytest.LogCaptureFixture, discarded: set[int]
) -> None:
    source = logging.getLogger("celery.app.trace")
    filters = [*source.filters]
    logs.dress_logger(logging.Logger("dressed"))
    world.book = FakeBook({0, 1})
    world.book.discarded = discarded
    try:
        with caplog.at_level(logging.INFO):
            for values in ((1,), (1, 2), (1, 2, 3)):
                result = world.run(*values)
                said = {"id": "x", "name": "unit.charge", "return_value": repr(result), "runtime": 0.1}
                source.info(LOG_SUCCESS, said, extra={"data": said})
    finally:
        source.filters[:] = filters
    assert ran == [3]
    alone, both, one_ran = [each.getMessage() for each in caplog.records if each.name == source.name]
    how = "discarded" if discarded else "settled already"
    assert alone == f"Task unit.charge[x] ended and its handler did not run: its delivery was {how}"
    assert "ended and its handler did not run: " in both
    assert ("1 discarded, 1 skipped; discarded: orders-0-0" if discarded else "2 skipped") in both
    assert "unit.charge[x] succeeded" in one_ran
    assert ("orders-0-0:unit.charge was discarded: its handler did not run." in caplog.text) is bool(discarded)


def test_a_failing_key_takes_its_later_messages_along_and_no_other_key(world: World) -> None:
    world.run(1, -2, 3, 4, keys=[b"a", b"b", b"b", b"a"], order="key")
    assert ran == [1, -2, 4]
    assert world.sent == [(4, [1, 2])]
    assert [delivery.attempts.failed for delivery in world.batches[0].deliveries] == [1, 0]


def test_in_partition_order_all_that_follows_waits(world: World) -> None:
    world.run(1, -2, 3, order="partition")
    assert ran == [1, -2]
    assert world.sent == [(4, [1, 2])]


def test_a_dead_message_frees_its_key(world: World) -> None:
    with pytest.raises(DeadLettered, match="1 dead, 1 done"):
        world.run(101, 2, keys=[b"a", b"a"], order="key")
    assert world.book.fates == {0: Fate.DEAD, 1: Fate.DONE}


def test_while_kafka_takes_no_dead_letter_its_key_waits_and_the_handler_does_not_run_again(world: World) -> None:
    world.kafka_down = True
    world.run(101, 2, keys=[b"a", b"a"], order="key")
    assert (ran, world.book.fates) == ([101], {})
    world.kafka_down = False
    with pytest.raises(DeadLettered):
        world.run_batch(world.batches[0])
    assert ran == [101, 2]
    assert world.letters == [(0, "permanent")]


def test_after_a_lost_process_the_one_that_ran_runs_alone_and_the_others_together(world: World) -> None:
    batch = world.made(1, 2, 3, 4)
    charged = [each.lost(1) if each.message.offset == 2 else each for each in batch.deliveries]
    world.run_batch(batch.holding(charged), lost=1, losses=["then it died"])
    assert ran == []
    assert world.sent == [(0, [0, 1, 3]), (0, [2])]
    assert world.pasts == [{"redelivered": True}, {"lost": 1, "losses": ["then it died"]}]


def test_after_a_lost_process_of_which_nothing_is_known_each_runs_alone(world: World) -> None:
    world.book = FakeBook({1})
    world.run(1, 2, 3, lost=1)
    assert ran == []
    assert world.sent == [(0, [0]), (0, [2])]


def test_a_dead_letter_that_a_killed_process_has_written_is_not_written_twice(world: World) -> None:
    world.letters.append((0, "permanent"))
    with pytest.raises(DeadLettered):
        world.run(101, restored=1)
    assert world.letters == [(0, "permanent")]
    assert world.book.fates[0] is Fate.DEAD


@pytest.mark.parametrize(
    ("order", "sent"),
    [(None, [[1], [2], [3]]), ("key", [[1, 2, 3]])],
    ids=["in parts, for others may be idle", "as one, where an order holds it together"],
)
def test_the_rest_of_a_batch_whose_size_was_found_goes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str | None, sent: list[list[int]]
) -> None:
    monkeypatch.setattr(charge, "batch", "auto")
    monkeypatch.setattr(charge, "batch_seconds", -1)
    # Slow, it seems: not two of them would be done in the time that a part may take.
    monkeypatch.setattr(retry_schedule, "PART_WITHIN", 1e-9)
    found = world.run(1, 2, 3, 4, keys=[b"a"] * 4, order=order)
    assert found.startswith("1 done, 3 put back")
    assert [offsets for _, offsets in world.sent] == sent


@pytest.mark.parametrize("order", [None, "partition"])
def test_what_goes_back_of_a_redelivered_batch_may_still_have_a_dead_letter(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str | None
) -> None:
    monkeypatch.setattr(charge, "batch_seconds", -1)
    world.run(1, 2, order=order, redelivered=True)
    world.book = FakeBook(set())
    world.run(1, 2, order=order)
    assert world.sent == [(0, [1])] * 2
    assert world.pasts == [{"redelivered": True}, {}]


def test_when_its_time_is_over_the_rest_goes_back_as_a_batch_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charge, "batch_seconds", -1)
    assert world.run(1, 2, 3) == "1 done, 2 put back; put back: orders-0-1 orders-0-2"
    assert world.sent == [(0, [1, 2])]


def test_who_asks_to_stop_waits_at_the_gate_with_what_has_not_run_and_has_spent_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[tuple[int, str]] = []
    monkeypatch.setattr(
        HaltGuard, "stop", lambda self, delivery, failure, error: stopped.append((delivery.message.offset, str(error)))
    )
    with pytest.raises(ComeBack) as caught:
        world.run(1, -1, 77, 2)
    assert stopped == [(2, "the bank is on fire")]
    left = from_header("unit.charge", caught.value.headers[HEADER])
    assert [(each.message.offset, each.attempts, each.runs) for each in left.deliveries] == [
        (1, Attempts(failed=1), 1),
        (2, Attempts(postponed=1), 1),
        (3, Attempts(), 0),
    ]
    assert (world.book.fates, world.sent, ran) == ({0: Fate.DONE}, [], [1, -1, 77])
    assert caught.value.gate.endswith(":topic:orders")


def test_a_message_whose_run_cannot_begin_comes_back_unchanged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(app: Any, batch: Batch) -> Any:
        raise OSError("no file descriptors are left")

    monkeypatch.setattr(BatchFates, "for_batch", fails)
    with pytest.raises(ComeBack, match="could not begin: OSError: no file descriptors are left") as caught:
        world.run(1, 2)
    assert (caught.value.headers, world.book.fates, ran) == ({}, {}, [])


def test_what_was_running_when_its_topic_was_halted_sends_what_it_has_to_send(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(self: HaltGuard) -> None:
        if len(ran) == 2:
            raise TopicHalted("the topic is halted")

    monkeypatch.setattr(HaltGuard, "check", check)
    assert world.comes_back(60, 61, 3).offsets == [2]
    assert len(world.published) == 2


def test_who_has_succeeded_does_not_run_again_for_what_kafka_does_not_take(world: World) -> None:
    world.kafka_down = True
    world.run(60, 1)
    ((delay, offsets),) = world.sent
    assert (delay > 0, offsets, ran) == (True, [0], [60, 1])
    world.kafka_down = False
    again = from_header("unit.charge", json.loads(json.dumps(to_header(world.batches[0]))))
    world.run_batch(again.holding([replace(each, due=None) for each in again.deliveries]))
    assert (len(world.published), ran) == (1, [60, 1])
    assert world.book.fates == {0: Fate.DONE, 1: Fate.DONE}


def test_what_kafka_has_is_not_published_again_where_the_ledger_does_not_answer(world: World, monkeypatch) -> None:
    world.book.silent = True
    # Marks of a batch wait for others for some milliseconds, which are over.
    monkeypatch.setattr(world.book, "done", lambda offset, now: world.book.mark(offset, Fate.DONE))
    left = world.comes_back(60, 61, 62)
    assert [(delivery.ended, len(delivery.outgoing)) for delivery in left.deliveries] == [("done", 1)] * 3
    world.book.silent = False
    world.run_batch(left)
    assert (ran, len(world.published)) == ([60, 61, 62], 3)
    assert world.book.fates == dict.fromkeys(range(3), Fate.DONE)


def test_who_has_succeeded_does_not_run_again_where_its_run_is_broken_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no database")

    monkeypatch.setattr(World, "send", broken)
    (left,) = world.comes_back(60).deliveries
    assert len(left.outgoing) == 1


def test_nothing_runs_of_a_topic_that_is_halted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: HaltGuard) -> None:
        if ran:
            raise TopicHalted("the topic is halted")

    monkeypatch.setattr(HaltGuard, "check", check)
    assert world.comes_back(1, 2, 3).offsets == [1, 2]
    assert ran == [1]


def find_gates_by(monkeypatch: pytest.MonkeyPatch, find: Callable[[HaltGuard, Delivery], str]) -> None:
    """Have something of the topic be halted, and the gate of each delivery be found so."""
    monkeypatch.setattr(DecisionCache, "get_small_halts", lambda self, topic: {HaltScope(topic, "another"): None})
    monkeypatch.setattr(HaltGuard, "find_key_gate", find)


def halt_keys(monkeypatch: pytest.MonkeyPatch, *keys: bytes) -> None:
    def find(self: HaltGuard, delivery: Delivery) -> str:
        key = delivery.message.key
        return f"held:{key.decode()}" if key in keys else ""

    find_gates_by(monkeypatch, find)


@pytest.mark.parametrize("order", [None, "key"])
def test_the_deliveries_of_a_halted_key_leave_their_batch_for_its_gate_and_the_others_are_done(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str | None
) -> None:
    halt_keys(monkeypatch, b"b", b"c")
    result = world.run(1, 2, 3, 4, 5, keys=[b"a", b"b", b"c", b"b", b"a"], order=order)
    assert result.startswith("2 done, 3 held; held: orders-0-1 orders-0-3 orders-0-2")
    assert world.held == [("held:b", [1, 3]), ("held:c", [2])]
    assert world.sent == [(0, [1, 3]), (0, [2])]
    assert ran == [1, 5]
    assert all(each.attempts == NO_ATTEMPTS for batch in world.batches for each in batch.deliveries)


def test_a_message_with_one_halted_key_waits_at_its_gate_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt_keys(monkeypatch, b"b")
    with pytest.raises(ComeBack) as caught:
        world.run(1, 2, keys=[b"b", b"b"])
    assert (caught.value.gate, world.sent, ran) == ("held:b", [], [])
    left = from_header("unit.charge", caught.value.headers[HEADER])
    assert left.offsets == [0, 1]


def test_a_delivery_of_a_halted_key_stays_behind_the_failed_one_before_it_in_its_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(self: HaltGuard, delivery: Delivery) -> str:
        return "held:b" if delivery.message.key == b"b" and ran else ""

    find_gates_by(monkeypatch, find)
    world.run(-1, 2, keys=[b"b", b"b"], order="key")
    assert (world.sent, world.held) == ([(4, [0, 1])], [])


def test_what_a_key_resumed_meanwhile_does_not_overtake_what_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def find(self: HaltGuard, delivery: Delivery) -> str:
        asked.append(delivery.message.offset)
        return "held:b" if delivery.message.offset == 1 else ""

    find_gates_by(monkeypatch, find)
    world.run(1, 2, 3, keys=[b"a", b"b", b"b"], order="key")
    assert (world.held, ran) == ([("held:b", [1, 2])], [1])


def test_a_dead_letter_holds_what_is_behind_it_in_its_order_until_it_is_replayed_or_discarded(world: World) -> None:
    world.book.holds_dead = True
    with pytest.raises(DeadLettered, match="1 dead, 1 done, 2 again"):
        world.run(101, 2, 3, 4, keys=[b"b", b"b", b"a", b"b"], order="key")
    ((delay, offsets),) = world.sent
    assert (delay > 0, offsets, ran) == (True, [1, 3], [101, 3])
    (held,) = world.batches
    assert [each.after for each in held.deliveries] == [0, 0]
    for end, runs in ((None, []), (Fate.DISCARDED, [2, 4])):
        if end:
            world.book.fates[0] = end
        ran.clear()
        world.run_batch(held)
        assert ran == runs
    assert world.book.fates == {0: Fate.DISCARDED, 1: Fate.DONE, 2: Fate.DONE, 3: Fate.DONE}


def test_what_is_behind_a_dead_letter_does_not_run_either_if_its_message_comes_back(world: World) -> None:
    world.book.holds_dead = True
    world.book.fates = {0: Fate.DEAD}
    assert "1 skipped, 1 again" in world.run(101, 2, keys=[b"b", b"b"], order="key")
    assert (ran, [each.after for each in world.batches[0].deliveries]) == ([], [0])


def test_without_a_hold_a_dead_letter_frees_its_key(world: World) -> None:
    with pytest.raises(DeadLettered, match="1 dead, 1 done"):
        world.run(101, 2, keys=[b"b", b"b"], order="key")
    assert ran == [101, 2]


def test_a_halted_handler_gives_its_message_back_to_its_own_gate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: HaltGuard) -> None:
        if ran:
            raise TopicHalted("the handler is halted", gate="bridge:held:orders:unit.charge")

    monkeypatch.setattr(HaltGuard, "check", check)
    with pytest.raises(ComeBack) as caught:
        world.run(1, 2)
    assert caught.value.gate == "bridge:held:orders:unit.charge"
    assert (world.book.fates, ran) == ({0: Fate.DONE}, [1])


def test_one_alone_ends_its_task_as_its_delivery_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run(1) == "charged 1"
    world.book.fates.clear()
    with pytest.raises(DeadLettered, match="permanent"):
        world.run(101)
    world.book.fates.clear()
    monkeypatch.setattr(type(charge), "apply_async", lambda *a, **k: None)
    with pytest.raises(Retry):
        world.run(-1)


def test_which_task_carried_what_has_ended_is_noted_of_a_batch_and_of_the_last_left_of_it(world: World) -> None:
    world.run(1, -2, 3)
    assert world.book.tasks == [("x", [0, 2])]
    world.book.silent = True
    world.comes_back(1, 2)
    assert world.book.tasks[1:] == [("x", [])]
    world.book.silent = False
    world.book.fates.clear()
    world.run(1)
    assert world.book.tasks[2:] == [("x", [0])]


def test_what_cannot_be_settled_stays_in_the_broker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError("the broker is away")

    monkeypatch.setattr(retry_schedule, "send_on", broken)
    (left,) = world.comes_back(-1, 2).deliveries
    assert (left.message.offset, left.attempts.failed, left.runs) == (0, 1, 1)
    assert left.due is not None
    # Its time has not come: it waits on, and its failure is counted once.
    monkeypatch.setattr(retry_schedule, "send_on", world.send_on)
    world.run_batch(Batch("unit.charge", "orders", 0, (left, *world.made(7, 7, 8).deliveries[2:])))
    assert ran == [-1, 2, 8]
    ((delay, offsets),) = world.sent
    assert offsets == [0]
    assert 3 < delay <= 4


def test_what_was_sent_on_is_not_sent_twice_if_the_next_cannot_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(*given: Any) -> None:
        if world.sent:
            raise OSError("the broker is away")
        world.send_on(*given)

    monkeypatch.setattr(retry_schedule, "send_on", once)
    assert world.comes_back(-1, 78).offsets == [1]
    assert world.sent == [(4, [0])]


def test_what_is_done_while_the_ledger_does_not_answer_travels_as_done_and_never_runs_again(world: World) -> None:
    world.book.silent = True
    left = world.comes_back(1, 2, -3, 4)
    assert [(delivery.message.offset, delivery.ended) for delivery in left.deliveries if delivery.ended] == [
        (0, "done"),
        (1, "done"),
        (3, "done"),
    ]
    again = world.comes_back_from(left)
    assert [delivery.ended for delivery in again.deliveries] == ["done", "done", "", "done"]
    world.book.silent = False
    assert world.run_batch(again) == "3 done, 1 again; again: orders-0-2"
    assert ran == [1, 2, -3, 4]
    assert world.book.fates == dict.fromkeys((0, 1, 3), Fate.DONE)


def test_a_dead_letter_that_is_written_and_cannot_be_marked_is_not_written_again(world: World) -> None:
    world.book.silent = True
    left = world.comes_back(101)
    assert [delivery.ended for delivery in left.deliveries] == ["dead"]
    world.book.silent = False
    world.run_batch(left)
    assert (ran, world.letters, world.book.fates) == ([101], [(0, "permanent")], {0: Fate.DEAD})


def test_the_dead_letter_and_its_topic_are_of_the_group_that_handed_it_off() -> None:
    made = EnvironmentSettings(BRIDGE_GROUP="workers")
    settings = Settings(FileSettings(kafka_dead_letter_topic="{topic}.{group}.dlq"), made, "", {})
    assert TopicNames.from_settings(settings.of_group("orders-eu")).dead_letters("orders") == "orders.orders-eu.dlq"
    assert settings.of_group("orders-eu").group == "orders-eu"
    assert settings.of_group("").group == "workers"


@pytest.mark.parametrize("what", ["labels", "_make"])
def test_what_only_observes_decides_nothing(world: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def broken(*_: Any) -> None:
        raise OSError("the folder of the metrics is gone")

    def refuses(record: Any) -> bool:
        raise ValueError("a filter of the user's")

    worker_metrics._of_runs.cache_clear()
    monkeypatch.setattr(worker_metrics, "_metrics", SimpleNamespace() if what == "labels" else None)
    monkeypatch.setattr(worker_metrics, "_make", broken)
    loggers = [logging.getLogger(f"tasks.{name}") for name in ("execution", "metrics", "book")]
    for logger in loggers:
        logger.addFilter(refuses)
    try:
        with pytest.raises(DeadLettered, match="1 done, 1 dead, 1 again"):
            world.run(1, 101, -2)
        world.book.fates.pop(0)
        assert world.run(1) == "charged 1"
    finally:
        for logger in loggers:
            logger.removeFilter(refuses)
    assert world.book.fates == {0: Fate.DONE, 1: Fate.DEAD}
    assert world.letters == [(1, "permanent")]
    assert world.sent == [(4, [2])]


def test_the_handler_is_one_of_the_app() -> None:
    assert app.tasks["unit.charge"] is charge


def test_what_was_settled_under_another_name_of_the_handler_is_skipped_and_marked_under_this_one(monkeypatch):
    ledger: Any = MemoryLedger()
    batch = Batch("new.name", "orders", 0, ())
    old, new = (Account(name, "orders", "", 0) for name in ("old.name", "new.name"))
    ledger.write([Mark(old, [0], Fate.DONE), Mark(old, [1], Fate.DEAD), Mark(new, [2], Fate.DONE)])
    assert BatchFates(ledger, batch, ("old.name",)).settled([0, 1, 2, 3]) == {0, 1, 2}
    assert [bytes(fates) for fates in ledger.fates_of([(new, [0, 1, 2, 3])])] == [
        bytes([Fate.DONE, Fate.DEAD, Fate.DONE, Fate.OPEN])
    ]
    assert BatchFates(ledger, batch).settled([3]) == set()


def test_a_header_that_this_version_cannot_read_costs_no_message(world):
    with pytest.raises(Reject) as refused:
        batch_run.run_batch(charge, {"topic": "orders", "form": 99})
    assert vars(refused.value)["requeue"]


def test_few_retries_join_no_message_that_is_far_larger_than_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis reads and writes the whole of what is joined: lone ones that join hundreds would stop it in an outage."""
    monkeypatch.setattr(redis_clock, "measure_clock_lead", lambda *_: 0.0)
    sent: list[dict[str, Any]] = []
    app: Any = SimpleNamespace(
        amqp=SimpleNamespace(queues={}), tasks={}, send_task=lambda *_, **options: sent.append(options["headers"])
    )
    deliveries = tuple(Delivery(Message("orders", 0, offset), "h") for offset in range(2))
    message_resend.send_on(app, Batch("h", "orders", 0, deliveries), 1.0, {}, most=500)
    assert sent[0]["joins"]["most"] == 2 * message_resend.ENLARGES


@pytest.mark.parametrize(("ahead", "most"), [(300.0, 500), (300.0, 1), (-300.0, 500), (-300.0, 1)])
def test_a_retry_is_due_by_the_clock_of_redis(monkeypatch: pytest.MonkeyPatch, ahead: float, most: int) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(redis_clock, "measure_clock_lead", lambda *_: ahead)
    deliveries = tuple(Delivery(Message("orders", 0, offset), "h") for offset in range(2))
    message_resend.send_on(_app_on("redis", sent), Batch("h", "orders", 0, deliveries), 5.0, {}, most=most)
    assert sent[0]["eta"].timestamp() == pytest.approx(time.time() - ahead + 5, abs=1)
    assert sent[0].get("countdown") is None


def test_on_rabbitmq_a_retry_is_due_by_the_clock_of_the_worker_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(redis_clock, "measure_clock_lead", lambda *_: 300.0)
    batch = Batch("h", "orders", 0, (Delivery(Message("orders", 0, 7), "h"),))
    message_resend.send_on(_app_on("amqp", sent), batch, 5.0, {})
    assert (sent[0].get("eta"), sent[0]["countdown"]) == (None, 5.0)


@pytest.mark.parametrize("most", [1, 500])
def test_a_wait_in_rabbitmq_is_the_same_however_long_it_takes_to_send_it(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Celery refuses a due time that is less than a second away when it publishes."""
    monkeypatch.setattr(redis_clock, "measure_clock_lead", lambda *_: 0.0)
    sent: list[dict[str, Any]] = []
    batch = Batch("h", "orders", 0, (Delivery(Message("orders", 0, 7), "h"),))
    message_resend.send_on(_app_on("amqp", sent, make_quorum_queue("q")), batch, 0.3, {}, most=most)
    assert (sent[0].get("eta"), sent[0]["countdown"]) == (None, message_resend.SHORTEST)


def _app_on(driver: str, sent: list[dict[str, Any]], *queues: Queue) -> Any:
    """Return an app whose broker has this driver, and which keeps what it sends."""
    connection = SimpleNamespace(transport=SimpleNamespace(driver_type=driver))
    return SimpleNamespace(
        amqp=SimpleNamespace(queues={queue.name: queue for queue in queues}),
        tasks={},
        send_task=lambda *_, **options: sent.append(options),
        connection_for_write=lambda: connection,
    )


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_what_is_parked_is_due_by_the_clock_of_redis(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    monkeypatch.setattr(redis_clock, "measure_clock_lead", lambda *_: ahead)
    delivery = Delivery(Message("orders", 0, 7), "h")
    parking = RetryParker(SimpleNamespace(app=None), Batch("h", "orders", 0, (delivery,)))  # type: ignore[arg-type]
    parking._waits = TierWaits(60, (60,))
    for wait, until in ((60, None), (90, 90)):
        clone = parking._clone(delivery, wait, None)
        assert clone.due / 1000 == pytest.approx(time.time() - ahead + 60, abs=1)
        assert clone.until == (until and pytest.approx((time.time() - ahead + until) * 1000, abs=1000))


@handler("orders", name="unit.pay", codec=int, batch=9, breaker=Breaker("unit.bank"))
def pay(number: int) -> None:
    ran.append(number)
    if number < 0:
        raise BankAway


@pytest.mark.parametrize("once", [False, True])
def test_a_batch_in_which_its_breaker_opens_gives_the_rest_back_unspent(
    monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    world, known = World(monkeypatch), [BreakerStatus()]

    class Breakers:
        def read_statuses(self, terms: Any) -> dict[str, BreakerStatus]:
            return {"unit.bank": known[-1]}

        def admit(self, *_: Any) -> BreakerStatus:
            return known[-1]

        def report(self, *_: Any) -> BreakerStatus:
            known.append(BreakerStatus("closed", "open", since=1.0, granted=False))
            return known[-1]

    breakers: Any = Breakers()
    monkeypatch.setattr(
        BreakerGuard, "for_task", lambda task, group: BreakerGuard(task.breaker, "unit", breakers, lambda _: None)
    )
    monkeypatch.setattr(BreakerGuard, "_seen", {})
    deliveries = tuple(
        Delivery(Message("orders", 0, offset, value=b"%d" % value), "unit.pay", once=once)
        for offset, value in enumerate([-1, 2, 3, 4])
    )
    headers: Any = {HEADER: to_header(Batch("unit.pay", "orders", 0, deliveries, group="unit"))}
    pay.apply(headers=headers, throw=True)
    assert ran == [-1]
    # Apart: those that never failed are tried first.
    sent = [[(each.message.offset, each.attempts) for each in batch.deliveries] for batch in world.batches]
    assert sent == [[(0, Attempts(postponed=1))], [(1, NO_ATTEMPTS), (2, NO_ATTEMPTS), (3, NO_ATTEMPTS)]]
    assert not world.letters


# Long waits go through retry topics


class Busy(Exception):
    """Asks for a long wait."""


@handler("orders", name="unit.notify", codec=int, batch=9, retry_delays=(300, 1_800, 5), give_up_after=10_000)
def notify(number: int) -> str:
    ran.append(number)
    if number == 7:
        raise RetryLater(70)
    if number == 8:
        raise RetryLater(100_000)
    if number < 0:
        raise Busy("no line")
    return "sent"


def to_notify(*values: int, order: str | None = None, keys: str = "", **known: Any) -> Batch:
    deliveries = tuple(
        Delivery(
            Message("orders", 0, offset, key=keys[offset].encode() if keys else None, value=b"%d" % value),
            "unit.notify",
            **known,
        )
        for offset, value in enumerate(values)
    )
    return Batch("unit.notify", "orders", 0, deliveries, "c", "g", "t", order)


def run_notify(batch: Batch, **headers: Any) -> Any:
    header = to_header(batch)
    task: Any = notify
    task.push_request(headers={HEADER: header, **headers}, called_directly=False, delivery_info={}, id="x")
    try:
        return batch_run.run_batch(notify, header)
    finally:
        notify.pop_request()


def test_a_long_wait_is_parked_and_not_sent_to_celery(world: World) -> None:
    assert run_notify(to_notify(-1, 2, -3)) == "1 done, 2 parked; parked: orders-0-0 orders-0-2"
    assert world.sent == []
    assert world.book.fates == {0: Fate.PARKED, 1: Fate.DONE, 2: Fate.PARKED}
    first, second = world.clones
    now = time.time()
    for clone, offset in ((first, 0), (second, 2)):
        assert (clone.delivery.message.offset, clone.delay, clone.until) == (offset, 300, None)
        assert (clone.delivery.number, clone.delivery.runs, clone.delivery.attempts) == (1, 1, Attempts(failed=1))
        assert now + 290 < clone.due / 1000 <= now + 300
        assert clone.failure is not None
        assert str(clone.failure) == "tests.unit.test_batch_run.Busy: no line"


def test_the_only_delivery_of_a_message_that_is_parked_is_a_task_that_runs_again(world: World) -> None:
    with pytest.raises(Retry, match="no line"):
        run_notify(to_notify(-1))
    assert world.book.fates == {0: Fate.PARKED}
    assert world.sent == []


def test_a_run_that_failed_is_carried_on_with_its_time_worker_and_version(world: World) -> None:
    with pytest.raises(Retry):
        run_notify(to_notify(-1))
    (note,) = world.clones[0].delivery.history
    assert (note.run, note.end) == (1, "failed")
    assert note.error.endswith("Busy: no line")
    assert note.took is not None
    assert note.version == notify.version
    assert time.time() * 1000 - note.ended_at < 60_000


def test_the_next_delay_of_an_explicit_list_is_parked_in_its_own_topic_and_a_short_one_is_celerys(world: World) -> None:
    with pytest.raises(Retry):
        run_notify(to_notify(-1, attempts=Attempts(failed=1)))
    assert world.clones[0].delay == 1_800
    run_notify(to_notify(-1, -1, attempts=Attempts(failed=2)))
    assert [delay for delay, _ in world.sent] == [5]
    assert len(world.clones) == 1


def test_a_wait_that_somebody_asks_for_is_rounded_up_and_spends_no_retry(world: World) -> None:
    with pytest.raises(Retry):
        run_notify(to_notify(7))
    (clone,) = world.clones
    assert (clone.delay, clone.delivery.attempts) == (120, Attempts(postponed=1))


def test_what_would_start_after_the_budget_is_expired_by_the_tiers_real_delay(world: World) -> None:
    hours_ago = int((time.time() - 9_930) * 1000)
    with pytest.raises(DeadLettered):
        # 70 s are left, and it asks for 70; but its topic holds it for 120.
        run_notify(to_notify(7, first_failed_at=hours_ago))
    assert world.letters == [(0, "expired")]
    assert world.clones == []


def test_what_waits_longer_than_every_topic_is_parked_again_without_running(world: World) -> None:
    monkey: Any = notify
    before, monkey.policy = monkey.policy, replace(monkey.policy, give_up_after=None)
    try:
        with pytest.raises(Retry):
            run_notify(to_notify(8))
        (clone,) = world.clones
        assert clone.until is not None
        assert (clone.delay, 99_990 < clone.until / 1000 - time.time() <= 100_000) == (86_400, True)
        ran.clear()
        world.book.fates.clear()
        # Its time in the topic is over, and the wait is not.
        with pytest.raises(Retry):
            run_notify(to_notify(8, due=time.time() + 13_600, number=1, runs=1, attempts=Attempts(postponed=1)))
        assert ran == []
        again = world.clones[1]
        assert (again.delay, again.until, again.delivery.number) == (21_600, None, 2)
        assert (again.delivery.runs, again.delivery.attempts) == (1, Attempts(postponed=1))
    finally:
        monkey.policy = before


def test_what_kafka_does_not_take_stays_in_celery_is_tried_again_and_spends_nothing_more(world: World) -> None:
    world.kafka_down = True
    run_notify(to_notify(-1, 2))
    (again,) = world.batches[0].deliveries
    assert [delay for delay, _ in world.sent] == [2]
    assert again.due is not None
    assert (again.publish_tries, again.number, again.attempts) == (1, 0, Attempts(failed=1))
    assert 290 < again.due - time.time() <= 300
    assert world.book.fates == {1: Fate.DONE}
    # Tried again, the handler does not run.
    ran.clear()
    world.kafka_down = False
    with pytest.raises(Retry):
        run_notify(world.batches[0])
    assert ran == []
    (clone,) = world.clones
    assert (clone.delay, clone.delivery.number, clone.delivery.attempts) == (300, 1, Attempts(failed=1))
    assert world.book.fates == {0: Fate.PARKED, 1: Fate.DONE}


def test_what_is_too_large_for_its_topic_waits_in_celery_as_long(world: World) -> None:
    world.too_large = True
    run_notify(to_notify(-1, 2))
    assert [round(delay) for delay, _ in world.sent] == [300]
    assert world.book.fates == {1: Fate.DONE}


def test_without_a_topic_to_wait_in_it_waits_in_celery(world: World) -> None:
    world.tiers = ()
    run_notify(to_notify(-1, 2))
    assert [delay for delay, _ in world.sent] == [300]
    assert world.clones == []


def test_what_kafka_had_before_a_crash_is_not_written_again(world: World) -> None:
    world.there = {("orders-0-0:unit.notify", 1)}
    with pytest.raises(Retry):
        run_notify(to_notify(-1), redelivered=True)
    assert world.clones == []
    assert world.book.fates == {0: Fate.PARKED}


def test_what_is_parked_and_not_marked_travels_as_that_and_is_not_run_again(world: World) -> None:
    world.book.silent = True
    with pytest.raises(ComeBack) as caught:
        run_notify(to_notify(-1))
    back = from_header("unit.notify", caught.value.headers[HEADER])
    assert [each.ended for each in back.deliveries] == ["parked"]
    ran.clear()
    world.book.silent = False
    run_notify(back)
    assert (ran, len(world.clones), world.book.fates) == ([], 1, {0: Fate.PARKED})


@pytest.mark.parametrize(
    "ended",
    [
        {"dead": Dead("exhausted", Failure("E", "m", "", 1))},
        {"outgoing": (OutgoingMessage("invoices", "id", None, b"1"),)},
    ],
    ids=["whose dead letter", "of which what it sends"],
)
def test_what_kafka_has_not_taken_of_what_has_ended_is_not_parked(world: World, ended: Any) -> None:
    run_notify(to_notify(1, 2, due=time.time() + 300, **ended))
    assert (ran, world.clones) == ([], [])
    assert len(world.sent) == 1
    assert [each.dead or each.outgoing for each in world.batches[0].deliveries] == [*ended.values()] * 2


def test_what_comes_after_it_in_its_order_is_parked_behind_it_and_not_run(world: World) -> None:
    run_notify(to_notify(-1, 2, 3, -4, 5, order="key", keys="abaaa"))
    assert ran == [-1, 2]
    parked = [(each.delivery.message.offset, each.delivery.after, each.delivery.runs) for each in world.clones]
    assert parked == [(0, None, 1), (2, 0, 0), (3, 2, 0), (4, 3, 0)]
    assert len({clone.due for clone in world.clones}) <= 2
    assert world.book.fates == {0: Fate.PARKED, 1: Fate.DONE, 2: Fate.PARKED, 3: Fate.PARKED, 4: Fate.PARKED}


def one(offset: int, value: int, **known: Any) -> Delivery:
    return Delivery(Message("orders", 0, offset, key=b"a", value=b"%d" % value), "unit.notify", **known)


def test_what_was_parked_behind_another_does_not_run_before_that_has_ended(world: World) -> None:
    batch = replace(to_notify(1), order="key")
    world.book.fates = {0: Fate.PARKED}
    run_notify(batch.holding([one(4, 5, after=0), one(5, 6, after=4)]))
    assert ran == []
    assert world.sent == [(1, [4, 5])]
    assert [each.after for each in world.batches[0].deliveries] == [0, 4]
    for fate in (Fate.DONE, Fate.DEAD, Fate.DISCARDED):
        ran.clear()
        world.book.fates = {0: fate}
        run_notify(world.batches[0])
        assert ran == [5, 6]


def test_what_waits_behind_another_looks_ever_more_seldom_and_is_parked_in_the_end(world: World) -> None:
    batch = replace(to_notify(1), order="key")
    world.book.fates = {0: Fate.PARKED}
    batch = batch.holding([one(4, 5, after=0), one(5, 6, after=4)])
    for _ in range(6):
        run_notify(batch)
        batch = world.batches[-1]
    run_notify(batch)
    assert [delay for delay, _ in world.sent] == [1, 2, 4, 8, 16, 32]
    assert [(each.delay, each.delivery.after, each.delivery.attempts) for each in world.clones] == [
        (60, 0, Attempts()),
        (60, 4, Attempts()),
    ]
    assert ran == []


@handler("orders", name="unit.tell", codec=int, batch=9, breaker=None)
def tell(number: int, message: Message) -> None:
    ran.append(number)
    message.publish("invoices", b"%d" % number)


def run_tell(*values: int) -> Any:
    deliveries = tuple(
        Delivery(Message("orders", 0, offset, value=b"%d" % value), "unit.tell") for offset, value in enumerate(values)
    )
    header = to_header(Batch("unit.tell", "orders", 0, deliveries, "c", "g", "t"))
    task: Any = tell
    task.push_request(headers={HEADER: header}, called_directly=False, delivery_info={}, id="x")
    try:
        return batch_run.run_batch(tell, header)
    finally:
        tell.pop_request()


def test_what_a_handler_sends_is_published_before_the_next_runs_unless_that_was_done_a_moment_ago(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_publication, "PUBLISH_EVERY", 0.0)
    run_tell(1, 2, 3)
    assert world.given == [(1, 1), (2, 1), (3, 1)]  # a neighbour that kills the process repeats none of them
    world.given.clear()
    world.book.fates.clear()
    monkeypatch.setattr(outgoing_publication, "PUBLISH_EVERY", 60.0)
    run_tell(1, 2, 3)
    assert world.given == [(6, 3)]
    assert world.book.fates == dict.fromkeys(range(3), Fate.DONE)


def test_while_kafka_is_away_a_batch_waits_for_it_no_more_than_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_publication, "PUBLISH_EVERY", 0.0)
    world.kafka_down = True
    run_tell(1, 2, 3, 4)
    assert ran == [1, 2, 3, 4]
    assert world.given == [(1, 1), (4, 3)]
    assert [len(each.outgoing) for batch in world.batches for each in batch.deliveries] == [1, 1, 1, 1]
    assert world.book.fates == {}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            Reject(OperationalError("LLEN: command not allowed when used memory > 'maxmemory'."), requeue=True),
            (
                "OperationalError",
                "the message of its retry could not be sent: Redis is full and refuses writes: raise its maxmemory or "
                "free memory (OperationalError: LLEN: command not allowed when used memory > 'maxmemory')",
            ),
        ),
        (Reject("of a newer version", requeue=True), ("Reject", "('of a newer version', True)")),
        (LedgerUnavailable("The ledger is down."), ("LedgerUnavailable", "The ledger is down.")),
    ],
    ids=["a retry that Redis refused", "no error inside", "another error"],
)
def test_a_redelivered_message_names_the_error_for_which_its_retry_could_not_be_sent(error: Exception, cause: Any):
    assert message_resend.find_reject_cause(error) == cause


@pytest.mark.parametrize(
    ("error", "reason", "noted"),
    [
        (RegistryDown(10, "the schema registry is unavailable"), "registry", 2),
        # What a handler asks for itself is no failure.
        (RetryLater(10, "busy"), "postponed", 0),
    ],
)
def test_an_outage_of_the_schema_registry_spends_no_attempt_and_is_noted_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, error: RetryLater, reason: str, noted: int
) -> None:
    failures: list[str] = []
    retries: list[str] = []
    monkeypatch.setattr(BatchTelemetry, "note_failure", lambda self, words: failures.append(words))
    monkeypatch.setattr(BatchTelemetry, "count_retry", lambda self, reason: retries.append(reason))

    def run(number: int, message: Message) -> str:
        raise error

    monkeypatch.setattr(charge, "run", run)
    world.run(1, 2)
    assert [again.attempts for again in world.batches[-1].deliveries] == [Attempts(postponed=1)] * 2
    assert (retries, failures) == ([reason] * 2, [str(Failure.from_error(error, traceback=False))] * noted)
