"""A bulk handler in the worker: one call for many deliveries, each with a fate of its own."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from bridge.errors import CannotSettle, PublishFailed
from bridge.formats.celery_header import HEADER, from_header, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.ledger import Fate
from bridge.ledger.breaker_state import BreakerStatus
from lossless.worker.run_outcome import ComeBack
from tasks import Breaker, DeadLetter, Messages, RetryLater, StopConsuming, handler
from tasks.errors import DeadLettered
from tasks.execution import batch_run
from tasks.execution.batch_progress import BatchState
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.halt_gate import HaltGuard
from tests.unit.test_batch_run import FakeBook, World, find_gates_by, halt_keys

calls: list[list[int]] = []


class BankAway(Exception):
    """Passes."""


def no_fault(values: list[int], messages: Messages) -> Any:
    return None


behave: list[Callable[[list[int], Messages], Any]] = [no_fault]


@handler(
    "orders", name="unit.store", codec=int, bulk=500, bind=True, max_retries=1, retry_jitter=False, retry_backoff=4
)
def store(self: Any, values: list[int], messages: Messages) -> Any:
    calls.append(values)
    return behave[0](values, messages)


@handler("orders", name="unit.send", codec=int, bulk=500, breaker=Breaker("unit.api"))
def send(values: list[int]) -> None:
    calls.append(values)
    raise BankAway


@handler("orders", name="unit.gather", codec=int, bulk=500)
async def gather(values: list[int]) -> int:
    await asyncio.sleep(0)
    calls.append(values)
    return sum(values)


class BulkWorld(World):
    """What a run of a bulk handler's batch has done."""

    def store(self, *values: object, behaves: Callable[[list[int], Messages], Any] = no_fault, **options: Any) -> Any:
        return self.run_batch(self.bulk(*values, **options.pop("of", {})), behaves=behaves, **options)

    def bulk(self, *values: object, keys: list[bytes | None] | None = None, order: str | None = None) -> Batch:
        made = [
            Delivery(Message("orders", 0, at, key=keys[at] if keys else None, value=str(value).encode()), "unit.store")
            for at, value in enumerate(values)
        ]
        return Batch("unit.store", "orders", 0, tuple(made), order=order)

    def run_batch(
        self,
        batch: Batch,
        behaves: Callable[[list[int], Messages], Any] = no_fault,
        task: Any = None,
        **headers: Any,
    ) -> Any:
        behave[0] = behaves
        header, task = to_header(batch), task or store
        task.push_request(headers={HEADER: header, **headers}, called_directly=False, delivery_info={}, id="x")
        try:
            return batch_run.run_batch(task, header)
        finally:
            task.pop_request()

    @property
    def done(self) -> list[int]:
        return sorted(offset for offset, fate in self.book.fates.items() if fate is Fate.DONE)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> BulkWorld:
    calls.clear()
    return BulkWorld(monkeypatch)


def refuse_negatives(values: list[int], messages: Messages) -> None:
    if any(value < 0 for value in values):
        raise BankAway


def test_the_handler_gets_all_values_and_messages_in_one_call_and_returning_settles_all(world):
    seen: list[Any] = []
    world.store(1, 2, 3, behaves=lambda values, messages: seen.append((values, [each.offset for each in messages])))
    assert seen == [([1, 2, 3], [0, 1, 2])]
    assert world.done == [0, 1, 2]


def test_a_single_delivery_is_a_list_of_one_and_its_result_is_the_tasks(world):
    assert world.store(5, behaves=lambda values, messages: sum(values)) == 5
    assert (calls, world.done) == ([[5]], [0])


def test_an_async_bulk_handler_is_awaited_once_for_all_values(world):
    assert gather.concurrency == 1
    world.run_batch(world.bulk(1, 2, 3), task=gather)
    assert (calls, world.done) == ([[1, 2, 3]], [0, 1, 2])


def test_what_fails_is_retried_as_its_error_says_and_the_others_are_done(world):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(1, BankAway())
        messages.fail(2, DeadLetter("too much"))
        messages.later(3, 30)

    with pytest.raises(DeadLettered, match=r"1 done, 1 dead, 2 again; the first of the dead: permanent.*too much"):
        world.store(1, 2, 3, 4, behaves=behaves)
    assert (len(calls), world.done, world.letters) == (1, [0], [(2, "permanent")])
    assert sorted(world.sent) == [(4, [1]), (30, [3])]
    failed = {each.message.offset: each.attempts for batch in world.batches for each in batch.deliveries}
    assert (failed[1].failed, failed[3].failed, failed[3].postponed) == (1, 0, 1)


def test_retries_that_are_due_together_are_a_bulk_again(world):
    world.store(-1, 2, -3, behaves=refuse_negatives)
    assert (world.sent, world.most) == ([(4, [0, 2])], 500)
    with pytest.raises(DeadLettered, match="2 dead; the first of the dead: exhausted"):
        world.run_batch(world.batches[0], behaves=refuse_negatives)
    assert calls[-3:] == [[-1, -3], [-1], [-3]]


def test_an_error_without_blame_splits_the_bulk_until_the_culprit_is_alone_and_repeats_nothing_done(world):
    world.store(1, 2, 3, 4, 5, -6, 7, 8, behaves=refuse_negatives)
    assert calls == [[1, 2, 3, 4, 5, -6, 7, 8], [1, 2, 3, 4], [5, -6, 7, 8], [5, -6], [5], [-6], [7, 8]]
    assert (world.done, world.sent) == ([0, 1, 2, 3, 4, 6, 7], [(4, [5])])


def test_an_error_with_blame_is_explained_by_it_and_the_others_run_again_together(world):
    def behaves(values: list[int], messages: Messages) -> None:
        if -3 in values:
            messages.fail(values.index(-3), DeadLetter("bad row"))
            raise BankAway

    with pytest.raises(DeadLettered, match="bad row"):
        world.store(1, 2, -3, 4, behaves=behaves)
    assert calls == [[1, 2, -3, 4], [1, 2, 4]]
    assert (world.done, world.letters) == ([0, 1, 3], [(2, "permanent")])


def test_a_value_that_does_not_decode_is_a_dead_letter_alone_and_the_indexes_are_those_of_the_list(world):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(1, BankAway())

    with pytest.raises(DeadLettered, match="undecodable"):
        world.store(1, "x", 3, 4, behaves=behaves)
    assert (calls, world.letters, world.sent) == ([[1, 3, 4]], [(1, "undecodable")], [(4, [2])])
    assert world.done == [0, 3]


def test_a_bulk_of_undecodable_values_calls_nothing(world):
    with pytest.raises(DeadLettered, match="2 dead"):
        world.store("x", "y")
    assert (calls, world.letters) == ([], [(0, "undecodable"), (1, "undecodable")])


def test_retry_later_puts_off_all_without_a_search_and_spends_no_retry(world):
    def behaves(values: list[int], messages: Messages) -> None:
        raise RetryLater(7)

    world.store(1, 2, 3, behaves=behaves)
    assert (len(calls), world.sent) == (1, [(7, [0, 1, 2])])
    assert [each.attempts.failed for each in world.batches[0].deliveries] == [0, 0, 0]


def test_what_is_put_off_without_end_is_expired_by_give_up_after(world, monkeypatch):
    monkeypatch.setattr(store, "policy", replace(store.policy, give_up_after=60))
    begun = time.time()
    world.store(1, 2, behaves=lambda values, messages: messages.later(0, 50))
    assert (world.sent, world.letters) == ([(50, [0])], [])
    monkeypatch.setattr(time, "time", lambda: begun + 51)
    with pytest.raises(DeadLettered, match="expired"):
        world.run_batch(world.batches[0], behaves=lambda values, messages: messages.later(0, 50))
    assert world.letters == [(0, "expired")]


def test_what_the_handler_asks_for_all_is_not_for_those_that_it_blamed(world):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(1, DeadLetter("bad row"))
        raise RetryLater(7)

    with pytest.raises(DeadLettered, match="bad row"):
        world.store(1, 2, 3, behaves=behaves)
    assert (len(calls), world.sent, world.letters) == (1, [(7, [0, 2])], [(1, "permanent")])


def test_self_retry_is_for_all_of_the_call(world):
    def behaves(values: list[int], messages: Messages) -> None:
        task: Any = store
        raise task.retry(countdown=9)

    world.store(1, 2, behaves=behaves)
    assert (len(calls), world.sent) == (1, [(9, [0, 1])])


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the deliveries that have halted their topic."""
    found: list[int] = []
    monkeypatch.setattr(HaltGuard, "stop", lambda self, delivery, failure, error: found.append(delivery.message.offset))
    return found


def test_stop_consuming_halts_the_topic_and_keeps_all(world, stopped):
    def behaves(values: list[int], messages: Messages) -> None:
        raise StopConsuming("the bank is on fire")

    with pytest.raises(ComeBack):
        world.store(1, 2, 3, behaves=behaves)
    assert (stopped, world.done, len(calls)) == ([0], [], 1)


@pytest.mark.parametrize(("order", "done"), [(None, [1, 2, 3]), ("key", [2, 3]), ("partition", [])])
def test_a_blamed_stop_settles_first_what_is_not_behind_it(world, stopped, order, done):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(0, StopConsuming("the bank is on fire"))

    with pytest.raises(ComeBack):
        world.store(1, 2, 3, 4, behaves=behaves, of={"order": order, "keys": [b"a", b"a", b"b", None]})
    assert (stopped, world.done) == ([0], done)


def test_a_soft_time_limit_is_an_error_of_the_call_and_smaller_ones_follow(world):
    def behaves(values: list[int], messages: Messages) -> None:
        if len(values) > 2:
            raise SoftTimeLimitExceeded

    world.store(1, 2, 3, 4, behaves=behaves)
    assert calls == [[1, 2, 3, 4], [1, 2], [3, 4]]
    assert world.done == [0, 1, 2, 3]


def test_after_a_lost_process_each_runs_apart(world):
    assert world.store(1, 2, 3, lost=1) == "broken up into 3"
    assert (calls, [offsets for _, offsets in world.sent]) == ([], [[0], [1], [2]])


def test_after_a_lost_process_an_ordered_bulk_goes_on_one_by_one_and_the_running_one_is_known(world, monkeypatch):
    noted: list[object] = []
    running: list[object] = []
    monkeypatch.setattr(
        BatchState,
        "note_only_running",
        lambda self, delivery: noted.append("several" if delivery is None else delivery.message.offset),
    )

    def behaves(values: list[int], messages: Messages) -> None:
        running.append(noted[-1])

    world.store(1, 2, behaves=behaves, of={"order": "partition"}, lost=1)
    assert (calls, running) == ([[1], [2]], [0, 1])
    world.book = FakeBook(set())
    world.store(1, 2, behaves=behaves)
    assert running[2:] == ["several"]


def test_what_the_ledger_cannot_be_told_comes_back_as_done_and_runs_for_none_again(world):
    world.book.silent = True
    with pytest.raises(ComeBack) as caught:
        world.store(1, 2, 3)
    world.book.silent = False
    world.run_batch(from_header("unit.store", json.loads(json.dumps(caught.value.headers[HEADER]))))
    assert (len(calls), world.done) == (1, [0, 1, 2])


@pytest.mark.parametrize("order", ["key", "partition", None])
def test_what_sends_messages_while_the_ledger_does_not_answer_runs_for_none_again(world, monkeypatch, order):
    def behaves(values: list[int], messages: Messages) -> None:
        messages[1].publish("invoices", {"of": 1})
        messages[2].publish("invoices", {"of": 2})

    world.book.silent = True
    # Marks of a batch wait for others for some milliseconds, which are over.
    monkeypatch.setattr(world.book, "done", lambda offset, now: world.book.mark(offset, Fate.DONE))
    with pytest.raises(ComeBack) as caught:
        world.store(1, 2, 3, 4, behaves=behaves, of={"order": order})
    world.book.silent = False
    world.run_batch(from_header("unit.store", json.loads(json.dumps(caught.value.headers[HEADER]))))
    assert (len(calls), world.done) == (1, [0, 1, 2, 3])


def test_by_key_what_is_done_beside_a_failed_one_runs_for_none_again_while_the_ledger_does_not_answer(world):
    def behaves(values: list[int], messages: Messages) -> None:
        if len(calls) == 1:
            messages.fail(2, BankAway())

    world.book.silent = True
    with pytest.raises(ComeBack) as caught:
        world.store(1, 2, 3, 4, behaves=behaves, of={"order": "key", "keys": [b"a", b"a", b"b", b"c"]})
    world.book.silent = False
    world.run_batch(from_header("unit.store", json.loads(json.dumps(caught.value.headers[HEADER]))))
    assert (calls[1:], world.done) == ([[3]], [0, 1, 2, 3])


def test_what_the_ledger_has_as_settled_is_not_given_again(world):
    world.book = FakeBook({1})
    world.store(1, 2, 3)
    assert calls == [[1, 3]]


def test_the_time_of_a_batch_ends_it_after_some_delivery_has_ended_and_not_before(world, monkeypatch):
    monkeypatch.setattr(store, "batch_seconds", 0.0)
    world.store(-1, 2, 3, 4, behaves=refuse_negatives)
    assert calls == [[-1, 2, 3, 4], [-1, 2], [-1]]
    assert sorted(world.sent) == [(0, [1, 2, 3]), (4, [0])]


@pytest.mark.parametrize("order", ["key", "partition"])
def test_with_an_order_what_is_behind_a_failed_one_of_its_key_waits_for_it(world, order):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(1, BankAway())

    world.store(1, 2, 3, 4, behaves=behaves, of={"order": order, "keys": [b"a", b"b", b"b", b"a"]})
    held = [1, 2] if order == "key" else [1, 2, 3]
    assert (world.sent, world.done) == ([(4, held)], [at for at in range(4) if at not in held])
    assert [each.attempts.failed for each in world.batches[0].deliveries] == [1] + [0] * (len(held) - 1)


def test_with_an_order_a_blamed_one_ends_after_those_before_it(world):
    def behaves(values: list[int], messages: Messages) -> None:
        if -3 in values:
            messages.fail(values.index(-3), BankAway())
            raise BankAway

    world.store(1, 2, -3, 4, behaves=behaves, of={"order": "partition"})
    assert calls == [[1, 2, -3, 4], [1, 2, 4]]
    assert (world.done, world.sent) == ([0, 1], [(4, [2, 3])])


def test_with_an_order_a_dead_letter_frees_its_key(world):
    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(0, DeadLetter("bad"))

    with pytest.raises(DeadLettered):
        world.store(1, 2, behaves=behaves, of={"order": "partition"})
    assert (world.done, world.letters) == ([1], [(0, "permanent")])


def test_a_predecessor_in_the_same_call_is_waited_for_by_it(world):
    batch = world.bulk(1, 2, order="partition")
    first, second = batch.deliveries
    world.run_batch(batch.holding([first, replace(second, after=0)]))
    assert (calls, world.done) == ([[1, 2]], [0, 1])


def test_in_an_order_a_handler_that_blames_one_a_call_and_raises_ends_one_before_its_time_limits_are_over(
    world, monkeypatch
):
    def behaves(values, messages):
        messages.fail(0, BankAway())
        raise RuntimeError("rolled back")

    monkeypatch.setattr(store, "batch_seconds", -1)
    world.store(*range(100), behaves=behaves, of={"order": "partition"})
    # Celery's own limit is for two more (tasks/worker/delivery_request.py).
    assert len(calls) <= (100).bit_length() + 2
    assert world.sent == [(4, list(range(100)))]


def test_in_an_order_messages_behind_those_that_kafka_refuses_are_not_sent_before_them(world, monkeypatch):
    given: list[str] = []

    def send(outgoing):
        given.extend(each.id for _, each in outgoing)
        return [PublishFailed("timed out") if each.id.startswith("orders-0-0:") else None for _, each in outgoing]

    def behaves(values, messages):
        for message in messages:
            message.publish("invoices", {"of": message.offset})

    monkeypatch.setattr(world, "send", send)
    world.store(1, 2, 3, behaves=behaves, of={"order": "key", "keys": [b"a", b"a", b"b"]})
    assert given == ["orders-0-0:unit.store:0", "orders-0-2:unit.store:0"]
    assert (world.done, world.sent) == ([2], [(2, [0, 1])])


def test_messages_that_a_failed_call_published_are_not_sent(world):
    def behaves(values: list[int], messages: Messages) -> None:
        for value, message in zip(values, messages, strict=True):
            message.publish("invoices", {"of": value})
        refuse_negatives(values, messages)

    world.store(1, -2, behaves=behaves)
    assert world.published == ["orders-0-0:unit.store:0"]


@pytest.mark.parametrize("redelivered", [False, True])
def test_an_open_breaker_lets_all_wait_with_one_report_and_without_a_search(monkeypatch, redelivered):
    world, known, reports = BulkWorld(monkeypatch), [BreakerStatus()], []

    class Breakers:
        def read_statuses(self, terms: Any) -> dict[str, BreakerStatus]:
            return {"unit.api": known[-1]}

        def admit(self, *_: Any) -> BreakerStatus:
            return known[-1]

        def report(self, *_: Any) -> BreakerStatus:
            reports.append(1)
            known.append(BreakerStatus("closed", "open", since=1.0, granted=False))
            return known[-1]

    breakers: Any = Breakers()
    if redelivered:
        known.append(BreakerStatus("open", "open", since=1.0, granted=False))
    monkeypatch.setattr(
        BreakerGuard, "for_task", lambda task, group: BreakerGuard(task.breaker, "unit", breakers, lambda _: None)
    )
    monkeypatch.setattr(BreakerGuard, "_seen", {})
    calls.clear()
    batch = Batch("unit.send", "orders", 0, world.bulk(1, 2, 3).deliveries, group="unit")
    batch = batch.holding([replace(each, handler="unit.send") for each in batch.deliveries])
    headers: Any = {HEADER: to_header(batch)}
    send.apply(headers=headers, throw=True)
    assert (len(calls), len(reports)) == ((0, 0) if redelivered else (1, 1))
    assert [offsets for _, offsets in world.sent] == [[0, 1, 2]]
    assert [each.attempts.failed for each in world.batches[0].deliveries] == [0, 0, 0]


def test_a_call_that_blames_all_its_messages_is_no_success_of_the_dependency(world, monkeypatch):
    successes: list[int] = []
    monkeypatch.setattr(BreakerGuard, "note_success", lambda self: successes.append(len(calls)))

    def behaves(values: list[int], messages: Messages) -> None:
        for number, value in enumerate(values):
            if value < 0:
                messages.fail(number, BankAway())

    world.store(-1, -2, behaves=behaves)
    world.book = FakeBook(set())
    world.store(-1, 2, behaves=behaves)
    assert successes == [2]


@pytest.fixture
def engine(tmp_path: Any) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/work.sqlite")
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE payments (id INTEGER)"))
    yield made
    made.dispose()


def payments(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


def pay(engine: Engine, values: list[int], messages: Messages) -> None:
    with Session(engine) as session, session.begin():
        messages.settle_with(session)
        session.execute(text("INSERT INTO payments VALUES (:id)"), [{"id": value} for value in values])


def test_settle_with_marks_all_and_what_was_committed_before_is_done_without_its_work_again(world, engine):
    batch = world.bulk(1, 2, 3, 4)
    world.run_batch(batch.holding(batch.deliveries[1:3]), behaves=lambda *given: pay(engine, *given))
    # The marks are in the database, and lost in the ledger.
    world.book = FakeBook(set())
    world.run_batch(batch, behaves=lambda *given: pay(engine, *given))
    assert payments(engine) == [1, 2, 3, 4]
    assert (world.done, calls) == ([0, 1, 2, 3], [[2, 3], [1, 2, 3, 4], [1, 4]])


def test_settle_with_leaves_out_what_is_blamed_and_refuses_to_blame_what_is_marked(world, engine):
    refused: list[str] = []

    def behaves(values: list[int], messages: Messages) -> None:
        messages.fail(0, BankAway())
        with Session(engine) as session, session.begin():
            messages.settle_with(session)
            with pytest.raises(CannotSettle) as caught:
                messages.later(1, 5)
            refused.append(str(caught.value))
        with Session(engine) as session, session.begin():
            marks = session.execute(text("SELECT delivery FROM bridge_settled")).scalars()
            refused.extend(marks)

    world.store(1, 2, behaves=behaves)
    assert "call later before settle_with" in refused[0]
    assert refused[1:] == ["orders-0-1:unit.store"]
    assert (world.done, world.sent) == ([1], [(4, [0])])


def test_a_transaction_that_is_rolled_back_marks_nothing_and_the_halves_mark_their_own(world, engine):
    def behaves(values: list[int], messages: Messages) -> None:
        with Session(engine) as session, session.begin():
            messages.settle_with(session)
            session.execute(text("INSERT INTO payments VALUES (:id)"), [{"id": value} for value in values])
            refuse_negatives(values, messages)

    world.store(1, -2, 3, behaves=behaves)
    assert (payments(engine), world.done) == ([1, 3], [0, 2])


@pytest.mark.parametrize("index", [3, -1, "0", True, None])
def test_blame_of_a_message_that_is_not_there_says_which_are(index):
    messages = Messages([Message("orders", 0, at) for at in range(3)])
    with pytest.raises(IndexError, match=r"messages.fail takes the index of a message, from 0 to 2; it was given"):
        messages.fail(index, BankAway())


def test_blame_takes_an_exception_and_seconds():
    messages = Messages([Message("orders", 0, 0)])
    with pytest.raises(TypeError, match=r"messages.fail takes an exception.*it was given 'too much'"):
        messages.fail(0, "too much")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes seconds"):
        messages.later(0, -1)
    assert messages.blamed == {}


@pytest.mark.parametrize("order", [None, "key"])
def test_what_has_a_halted_key_waits_at_its_gate_and_is_in_no_call(world, monkeypatch, order):
    halt_keys(monkeypatch, b"b")
    keys = [b"a", b"b", b"c", b"b"]
    assert world.store(1, 2, 3, 4, of={"order": order, "keys": keys}).startswith("2 done, 2 held; held: orders-0-1")
    assert (calls, world.done, world.held) == ([[1, 3]], [0, 2], [("held:b", [1, 3])])


def test_a_bulk_whose_keys_are_all_halted_waits_as_it_is(world, monkeypatch):
    halt_keys(monkeypatch, b"b")
    with pytest.raises(ComeBack) as caught:
        world.store(1, 2, of={"keys": [b"b", b"b"]})
    assert (caught.value.gate, calls, world.sent) == ("held:b", [], [])


def test_a_key_that_is_halted_while_a_bulk_is_halved_is_in_no_further_call(world, monkeypatch):
    find_gates_by(monkeypatch, lambda self, delivery: "held:b" if calls and delivery.message.key == b"b" else "")
    world.store(1, 2, -3, 4, behaves=refuse_negatives, of={"keys": [b"a", b"b", b"c", b"b"]})
    assert calls == [[1, 2, -3, 4], [1], [-3]]
    assert (world.done, world.held) == ([0], [("held:b", [1, 3])])


@pytest.mark.parametrize("order", ["key", "partition"])
def test_with_an_order_a_dead_letter_that_holds_lets_nothing_behind_it_end(world, order):
    def behaves(values: list[int], messages: Messages) -> None:
        if -2 in values:
            messages.fail(values.index(-2), DeadLetter("bad row"))
            raise BankAway

    world.book.holds_dead = True
    with pytest.raises(DeadLettered, match="bad row"):
        world.store(1, -2, 3, 4, behaves=behaves, of={"order": order, "keys": [b"a", b"b", b"b", b"a"]})
    held = [2] if order == "key" else [2, 3]
    assert world.done == [offset for offset in (0, 2, 3) if offset not in held]
    (waiting,) = world.batches
    assert {delivery.message.offset: delivery.after for delivery in waiting.deliveries} == dict.fromkeys(held, 1)


def test_one_that_is_done_is_settled_though_one_behind_it_waits_for_a_dead_one_of_another_message(world):
    world.book.holds_dead = True
    world.book.fates = {1: Fate.DEAD}
    batch = world.bulk(0, 1, 2, keys=[b"a"] * 3, order="key")
    first, _, last = batch.deliveries
    world.run_batch(batch.holding([first, replace(last, after=1)]))
    assert calls == [[0]]
    assert world.book.fates[0] == Fate.DONE
    assert [[each.message.offset for each in sent.deliveries] for sent in world.batches] == [[2]]
