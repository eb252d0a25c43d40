"""A handler with `unique_by`: of two records with one name one runs, and nothing is lost where that one fails."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from celery.exceptions import Retry

from bridge.errors import LedgerUnavailable
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Attempts, Batch, Delivery, Message, Via
from bridge.formats.outbox import OutgoingMessage
from bridge.ledger import Account, Fate, Mark
from bridge.ledger.name_claims import NameClaims
from lossless.worker.run_outcome import ComeBack
from tasks import DeadLetter, StopConsuming, handler
from tasks.declaration.unique_name import UniqueName
from tasks.errors import DeadLettered
from tasks.execution import batch_run, delivery_admission, handler_attempt, outcome_actions
from tasks.execution.batch_fates import BatchFates
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.concurrent_run import ConcurrentAttempts
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.unique_guard import UniqueGuard
from tasks.worker import worker_metrics
from tests.memory_ledger import MemoryLedger
from tests.unit.test_batch_run import World

ran: list[int] = []
TRANSFER = Account("unit.transfer", "orders", "", 0)


@handler(
    "orders",
    name="unit.transfer",
    codec=bytes,
    batch=9,
    max_retries=1,
    retry_jitter=False,
    retry_backoff=4,
    unique_by="header:message_id",
    unique_for=60,
)
def transfer(value: bytes, message: Message) -> str:
    ran.append(message.offset)
    if value == b"fail":
        raise ConnectionError
    if value == b"die":
        raise DeadLetter("too much")
    if value == b"halt":
        raise StopConsuming("the bank is on fire")
    if value == b"publish":
        message.publish("invoices", {"of": 1})
    return "transferred"


@handler(
    "orders",
    name="unit.remit",
    codec=bytes,
    batch=9,
    concurrency=4,
    max_retries=1,
    retry_jitter=False,
    retry_backoff=4,
    unique_by="header:message_id",
    unique_for=60,
)
async def remit(value: bytes, message: Message) -> None:
    ran.append(message.offset)
    await asyncio.sleep(0.02)
    if value == b"fail":
        raise ConnectionError


class Fates(BatchFates):
    """Fates in memory, of which no telemetry hears."""

    @property
    def ledger(self) -> None:
        return None

    def find_wipe(self, message: Message) -> float | None:
        return None


class NamedWorld(World):
    """What runs of batches of one handler have done, one after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.ledger = MemoryLedger()
        ledger: Any = self.ledger
        self.claims = NameClaims(ledger)
        monkeypatch.setattr(BatchFates, "for_batch", lambda app, batch: Fates(ledger, batch))
        monkeypatch.setattr(
            UniqueGuard,
            "for_batch",
            lambda task, fates, ended, within: UniqueGuard(task, fates, self.claims, ended, within),
        )
        ran.clear()

    def deliver(self, *deliveries: Delivery, order: str | None = None, to: Any = transfer) -> Any:
        task: Any = to
        own = tuple(replace(delivery, handler=task.name) for delivery in deliveries)
        batch = Batch(task.name, "orders", 0, own, order=order)
        self.ledger.write([Mark(TRANSFER._replace(handler=task.name), batch.offsets, Fate.HANDED)])
        header = {HEADER: to_header(batch)}
        task.push_request(headers=header, called_directly=False, delivery_info={}, id="x")
        try:
            return batch_run.run_batch(task, header[HEADER])
        finally:
            task.pop_request()

    def fates(self, *offsets: int, of: Any = transfer) -> list[Fate]:
        account = TRANSFER._replace(handler=of.name)
        return [Fate(self.ledger.fates(account, offset, offset)[0]) for offset in offsets]

    def key(self, name: bytes) -> str:
        return self.claims.key("unit.transfer", "orders", name)

    def state(self, name: bytes) -> str | None:
        """The record that has a name, and what it does."""
        return self.ledger.names.get(self.key(name))

    def hold(self, name: bytes, record: str) -> None:
        """Let another record with that name run."""
        self.claims.claim(self.key(name), record, 60)


def record(offset: int, name: bytes | None, value: bytes = b"") -> Delivery:
    headers = () if name is None else (("message_id", name),)
    return Delivery(Message("orders", 0, offset, value=value, headers=headers), "unit.transfer")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> NamedWorld:
    return NamedWorld(monkeypatch)


def test_the_second_record_with_a_name_is_done_without_a_run(world: NamedWorld, monkeypatch) -> None:
    counted: list[str] = []
    monkeypatch.setattr(worker_metrics, "count_duplicate", lambda name, group: counted.append(name))
    assert world.deliver(record(0, b"a")) == "transferred"
    assert world.deliver(record(5, b"a")) == "a duplicate of orders-0-0"
    assert world.deliver(record(6, b"b")) == "transferred"
    assert ran == [0, 6]
    assert world.fates(0, 5, 6) == [Fate.DONE] * 3
    assert counted == ["unit.transfer"]
    assert world.state(b"a") == "d orders-0-0"


def test_messages_without_a_name_all_run(world: NamedWorld) -> None:
    world.deliver(record(0, None))
    world.deliver(record(1, b""), record(2, None))
    assert ran == [0, 1, 2]
    assert world.ledger.names == {}


@pytest.mark.parametrize("order", [None, "partition"])
def test_in_one_batch_the_second_is_a_duplicate_too(world: NamedWorld, order: str | None) -> None:
    ended = world.deliver(record(0, b"a"), record(1, b"b"), record(2, b"a"), order=order)
    assert ended == "2 done, 1 duplicate; duplicate: orders-0-2"
    assert ran == [0, 1]
    assert world.fates(0, 1, 2) == [Fate.DONE] * 3
    assert world.sent == []


def test_side_by_side_the_second_waits_while_the_first_runs_and_is_a_duplicate_then(
    world: NamedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bytes | None] = []
    run_judge = ConcurrentAttempts.run_judge

    def within_limits_of_side_by_side(self: ConcurrentAttempts, delivery: Delivery, judge: Any) -> Any:
        found.append(name := run_judge(self, delivery, judge))
        return name

    monkeypatch.setattr(ConcurrentAttempts, "run_judge", within_limits_of_side_by_side)
    world.deliver(record(0, b"a"), record(1, b"b"), record(2, b"a"), to=remit)
    assert ran == [0, 1]
    assert world.fates(0, 1, 2, of=remit) == [Fate.DONE, Fate.DONE, Fate.HANDED]
    assert world.sent == [(0.5, [2])]
    assert found == [b"a", b"b", b"a"]
    assert world.deliver(record(2, b"a"), to=remit) == "a duplicate of orders-0-0"
    assert ran == [0, 1]


def test_side_by_side_a_failed_one_leaves_its_name_to_the_next(world: NamedWorld) -> None:
    world.deliver(record(0, b"a", b"fail"), record(1, b"b"), to=remit)
    world.deliver(record(2, b"a"), record(3, b"c"), to=remit)
    assert ran == [0, 1, 2, 3]
    assert world.fates(0, 1, 2, 3, of=remit) == [Fate.HANDED, Fate.DONE, Fate.DONE, Fate.DONE]


def test_in_one_batch_the_second_runs_where_the_first_failed(world: NamedWorld) -> None:
    world.deliver(record(0, b"a", b"fail"), record(1, b"a"))
    assert ran == [0, 1]
    assert world.fates(0, 1) == [Fate.HANDED, Fate.DONE]
    assert world.sent == [(4.0, [0])]
    # The retry of the first is a duplicate by now.
    assert world.deliver(record(0, b"a")) == "a duplicate of orders-0-1"
    assert ran == [0, 1]
    assert world.fates(0) == [Fate.DONE]


def test_a_first_that_dies_leaves_its_name_to_the_second(world: NamedWorld) -> None:
    with pytest.raises(DeadLettered):
        world.deliver(record(0, b"a", b"die"))
    assert world.state(b"a") is None
    assert world.deliver(record(1, b"a")) == "transferred"
    assert world.fates(0, 1) == [Fate.DEAD, Fate.DONE]
    assert world.letters == [(0, "permanent")]


def test_while_the_first_runs_the_second_waits_and_spends_no_attempt(world: NamedWorld, monkeypatch) -> None:
    sent: list[tuple[Batch, float]] = []

    def retry_batch(task: Any, batch: Batch, delay: float, words: str, **options: Any) -> None:
        sent.append((batch, delay))
        raise Retry(words)

    monkeypatch.setattr("tasks.execution.retry_schedule.retry_batch", retry_batch)
    world.hold(b"a", "orders-1-9")
    with pytest.raises(Retry, match="orders-1-9, which has the same unique name, is running"):
        world.deliver(record(0, b"a"))
    with pytest.raises(Retry):
        world.deliver(*sent[0][0].deliveries)
    assert [delay for _, delay in sent] == [0.5, 1.0]
    assert ran == []
    assert not any(sent[1][0].deliveries[0].attempts)
    world.claims.release(world.key(b"a"), "orders-1-9")
    assert world.deliver(*sent[1][0].deliveries) == "transferred"


def test_in_an_order_what_is_behind_a_waiting_record_of_its_lane_waits_too(world: NamedWorld) -> None:
    world.hold(b"a", "orders-1-9")
    world.deliver(record(0, b"a"), record(1, b"b"), order="partition")
    assert ran == []
    assert world.sent == [(0.5, [0, 1])]


@pytest.mark.parametrize("order", [None, "partition"])
def test_a_halt_releases_the_name(world: NamedWorld, monkeypatch, order: str | None) -> None:
    monkeypatch.setattr(HaltGuard, "stop", lambda self, *_: None)
    with pytest.raises(ComeBack):
        world.deliver(record(0, b"a", b"halt"), order=order)
    assert world.state(b"a") is None


def test_its_own_record_takes_over_what_a_killed_process_held(world: NamedWorld) -> None:
    world.hold(b"a", "orders-0-0")
    assert world.deliver(record(0, b"a")) == "transferred"
    assert world.state(b"a") == "d orders-0-0"


@pytest.mark.parametrize("fate", [Fate.DEAD, Fate.DISCARDED])
@pytest.mark.parametrize("partition", [0, 3])
def test_a_record_that_was_given_up_after_its_process_was_killed_leaves_its_name_to_the_next(
    world: NamedWorld, fate: Fate, partition: int
) -> None:
    world.hold(b"a", f"orders-{partition}-0")
    world.ledger.write([Mark(TRANSFER._replace(partition=partition), [0], Fate.HANDED)])
    world.deliver(record(1, b"a"), record(2, b"b"), order="partition")
    assert (ran, world.sent) == ([], [(0.5, [1, 2])])
    world.ledger.write([Mark(TRANSFER._replace(partition=partition), [0], fate)])
    assert world.deliver(record(1, b"a")) == "transferred"
    assert world.state(b"a") == "d orders-0-1"


def test_a_replay_of_a_dead_record_keeps_its_name_while_it_runs(world: NamedWorld, monkeypatch) -> None:
    seen: list[str | None] = []

    def work(value: bytes, message: Message) -> None:
        seen.append(world.state(b"a"))
        raise DeadLetter("still")

    monkeypatch.setattr(transfer, "run", work)
    world.ledger.write([Mark(TRANSFER, [0], Fate.HANDED), Mark(TRANSFER, [0], Fate.DEAD)])
    replayed = replace(record(0, b"a"), attempts=Attempts(replayed=1), via=Via("orders.replay", 0, 4))
    with pytest.raises(DeadLettered):
        world.deliver(replayed)
    assert (seen, world.state(b"a")) == (["r orders-0-0"], None)


def test_while_a_replay_runs_the_second_waits(world: NamedWorld) -> None:
    world.ledger.write([Mark(TRANSFER, [0], Fate.HANDED), Mark(TRANSFER, [0], Fate.DEAD)])
    world.claims.claim(world.key(b"a"), "orders-0-0", 60, replayed=True)
    world.deliver(record(1, b"a"), record(2, b"b"))
    assert (ran, world.sent) == ([2], [(0.5, [1])])


def test_a_late_copy_of_a_done_record_leaves_the_name_done(world: NamedWorld) -> None:
    world.deliver(record(0, b"a"))
    # Another message of it was taken before the mark; it fails.
    world.ledger.forget(TRANSFER, 0, 0)
    world.deliver(record(0, b"a", b"fail"), record(2, b"b"))
    assert world.state(b"a") == "d orders-0-0"
    assert world.deliver(record(1, b"a")) == "a duplicate of orders-0-0"


def test_a_record_that_a_person_runs_again_runs_though_its_name_is_done(world: NamedWorld) -> None:
    world.deliver(record(0, b"a"))
    world.ledger.forget(TRANSFER, 0, 0)
    assert world.deliver(record(0, b"a")) == "transferred"
    again = replace(record(1, b"a"), again="yes")
    assert world.deliver(again) == "transferred"
    assert ran == [0, 0, 1]


def test_while_an_open_breaker_holds_it_back_it_has_no_name(world: NamedWorld, monkeypatch) -> None:
    open_breaker = BreakerGuard(None, "", None, lambda _: None)
    open_breaker.is_used = True
    monkeypatch.setattr(open_breaker, "admits", lambda: False)
    monkeypatch.setattr(BreakerGuard, "for_task", lambda task, group: open_breaker)
    world.deliver(record(0, b"a"), record(1, b"b"))
    assert (ran, world.ledger.names) == ([], {})
    # A duplicate needs no dependency.
    world.ledger.names[world.key(b"a")] = "d orders-1-9"
    assert world.deliver(record(0, b"a")) == "a duplicate of orders-1-9"


def test_a_name_whose_release_redis_did_not_hear_is_its_records_until_that_has_run_again(
    world: NamedWorld, monkeypatch
) -> None:
    def unheard(self: NameClaims, key: str, record: str) -> None:
        raise LedgerUnavailable("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(NameClaims, "release", unheard)
        world.deliver(record(0, b"a", b"fail"), record(3, None))
    assert world.state(b"a") == "h orders-0-0"
    (again,) = world.batches[0].deliveries
    world.deliver(record(1, b"a"), record(4, None))
    assert (ran, world.sent[1:]) == ([0, 3, 4], [(0.5, [1])])
    world.deliver(replace(again, message=replace(again.message, value=b"")))
    assert world.deliver(record(1, b"a")) == "a duplicate of orders-0-0"
    assert ran == [0, 3, 4, 0]


def test_a_ledger_that_does_not_answer_lets_nothing_run(world: NamedWorld, monkeypatch) -> None:
    def run(*_: Any) -> None:
        raise LedgerUnavailable("no answer")

    monkeypatch.setattr(world.ledger, "run", run)
    world.deliver(record(0, b"a"), record(1, b"b"))
    assert ran == []
    assert world.sent == [(delivery_admission.LEDGER_DELAY, [0, 1])]


def test_a_success_whose_messages_kafka_does_not_take_keeps_its_name(world: NamedWorld) -> None:
    world.kafka_down = True
    world.deliver(record(0, b"a", b"publish"), record(1, b"b"))
    (left,) = world.batches
    assert world.state(b"a") == "h orders-0-0"
    world.kafka_down = False
    world.deliver(*(replace(delivery, due=None) for delivery in left.deliveries))
    assert (ran, world.state(b"a")) == ([0, 1], "d orders-0-0")


def test_a_success_whose_messages_wait_keeps_its_name_for_the_longer_of_window_and_lease(
    world: NamedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[int] = []
    run = world.ledger.run

    def noted(doing: str, what: Any, keys: Any, args: Any) -> Any:
        leases.append(args[1] // 1000)
        return run(doing, what, keys, args)

    monkeypatch.setattr(world.ledger, "run", noted)
    world.kafka_down = True
    world.deliver(record(0, b"a", b"publish"), record(1, None))
    monkeypatch.setattr(transfer, "unique", UniqueName("header:message_id", 7_200.0, "unit.transfer"))
    world.deliver(record(2, b"b", b"publish"), record(3, None))
    assert leases == [3_600, 3_600, 3_600, 7_200]


def test_what_ended_before_the_ledger_heard_of_it_has_its_name_done_with_it(world: NamedWorld) -> None:
    world.deliver(replace(record(0, b"a"), ended="done"), record(1, b"b"))
    assert (ran, world.state(b"a")) == ([1], "d orders-0-0")


def test_what_ended_before_the_ledger_heard_of_it_has_its_name_before_a_neighbour_runs(world: NamedWorld) -> None:
    # The lease of its claim ended in the outage.
    world.deliver(replace(record(0, b"m-1"), ended="done"), record(1, b"m-1"))
    assert (ran, world.fates(0, 1)) == ([], [Fate.DONE] * 2)


def test_a_name_that_cannot_be_found_fails_the_delivery_and_its_handler_does_not_run(world: NamedWorld, monkeypatch):
    def find(message: Message) -> bytes:
        raise KeyError("id")

    monkeypatch.setattr(transfer, "find_unique_name", find)
    world.deliver(record(0, b"a"), record(1, b"b"))
    assert ran == []
    assert world.sent == [(4.0, [0, 1])]


@pytest.mark.parametrize("to", [transfer, remit])
def test_a_unique_by_that_ends_its_process_is_a_failure_and_a_dead_letter_in_the_end(
    world: NamedWorld, monkeypatch, to: Any
) -> None:
    def find(message: Message) -> bytes | None:
        if message.offset == 0:
            raise SystemExit("no name")
        return b"b"

    monkeypatch.setattr(to, "find_unique_name", find)
    world.deliver(record(0, b"a"), record(1, b"b"), to=to)
    assert (ran, world.sent) == ([1], [(4.0, [0])])
    (again,) = world.batches[0].deliveries
    with pytest.raises(DeadLettered, match="exhausted: SystemExit: no name"):
        world.deliver(again, to=to)
    assert (ran, world.letters) == ([1], [(0, "exhausted")])


def test_a_process_that_is_told_to_end_while_unique_by_runs_settles_nothing(world: NamedWorld, monkeypatch) -> None:
    def find(message: Message) -> bytes:
        monkeypatch.setattr(handler_attempt, "terminate_handler_fired", lambda: True)
        raise SystemExit

    monkeypatch.setattr(transfer, "find_unique_name", find)
    with pytest.raises(SystemExit):
        world.deliver(record(0, b"a"), record(1, b"b"))
    assert (ran, world.sent, world.letters) == ([], [], [])


def test_a_name_that_cannot_be_found_counts_as_a_failed_run(world: NamedWorld, monkeypatch) -> None:
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(
        worker_metrics, "count_runs", lambda handler, group, outcome, *seconds: counted.append((outcome, len(seconds)))
    )

    def find(message: Message) -> bytes:
        raise KeyError("id")

    monkeypatch.setattr(transfer, "find_unique_name", find)
    world.deliver(record(0, b"a"), record(1, b"b"))
    assert counted == [("failed", 2)]


def test_a_replayed_duplicate_goes_on_in_its_sequence(world: NamedWorld, monkeypatch) -> None:
    onward = OutgoingMessage("orders.replay", "onward", b"k", b"v", ())
    monkeypatch.setattr(outcome_actions, "make_sequence_step", lambda app, batch, delivery: onward)
    world.ledger.names[world.key(b"a")] = "d orders-1-9"
    assert world.deliver(record(0, b"a")) == "a duplicate of orders-1-9"
    assert (ran, world.published, world.fates(0)) == ([], ["onward"], [Fate.DONE])
