"""Deliveries of an `async def` handler side by side: each has its own limits, log, end and place in its order."""

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from billiard.pool import soft_timeout_sighandler

from bridge.formats.celery_header import HEADER, from_header
from bridge.formats.delivery import Attempts, Batch, Delivery, Message
from bridge.ledger import Fate
from bridge.ledger.breaker_state import BreakerStatus
from lossless.worker.run_outcome import ComeBack
from tasks import Breaker, DeadLetter, HandlerError, StopConsuming, app, handler
from tasks.errors import DeadLettered, GivenAway
from tasks.execution import event_loop, handler_attempt, time_limits
from tasks.execution.batch_progress import BatchState
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.concurrent_run import DeliveryLanes
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.message_lease import MessageLease
from tasks.execution.time_limits import Watchdog
from tasks.logs import WithDelivery
from tasks.worker import concurrency_meter
from tasks.worker.concurrency_meter import COLD_RUNS, FoundConcurrency, HandlerTime, add_batch
from tests.unit.test_batch_run import FakeBook, World, halt_keys

#: What happened, in order.
events: list[str] = []
traced: contextvars.ContextVar[str] = contextvars.ContextVar("traced", default="")


class BankAway(Exception):
    """Passes."""


@handler("orders", name="unit.beside", batch=9, concurrency=4, max_retries=1, retry_jitter=False, retry_backoff=4)
async def beside(value: Any, message: Message) -> str:
    events.append(f"begin {message.offset}")
    match value:
        case {"sleep": seconds}:
            await asyncio.sleep(seconds)
        case {"spin": seconds}:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                sum(range(1000))
        case {"fail": seconds}:
            await asyncio.sleep(seconds)
            raise BankAway
        case {"dead": seconds}:
            await asyncio.sleep(seconds)
            raise DeadLetter("too much")
        case {"halt": seconds}:
            await asyncio.sleep(seconds)
            raise StopConsuming("the bank is on fire")
        case {"publish": seconds}:
            message.publish("invoices", {"of": message.offset})
            await asyncio.sleep(seconds)
        case {"exit": _}:
            raise SystemExit(3)
    events.append(f"end {message.offset}")
    return f"charged {message.offset}"


def batch_of(*values: str, keys: str = "", order: str | None = None, name: str = "unit.beside", **known: Any) -> Batch:
    deliveries = tuple(
        Delivery(
            Message(
                "orders", 0, offset, key=keys[offset].strip().encode() or None if keys else None, value=_json(value)
            ),
            name,
            **known,
        )
        for offset, value in enumerate(values)
    )
    return Batch(name, "orders", 0, deliveries, order=order)


def _json(value: str) -> bytes:
    """`sleep 0.1` as the value `{"sleep": 0.1}`."""
    what, seconds = value.split()
    return b'{"%s": %s}' % (what.encode(), seconds.encode())


def count_most_at_once() -> int:
    """Return how many deliveries ran side by side at most, as their events tell."""
    return max(accumulate(1 if event.startswith("begin") else -1 for event in events))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    events.clear()
    return World(monkeypatch)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A process of prefork, with time limits; and what happened as it was killed."""
    done: list[str] = []
    before = signal.signal(signal.SIGUSR1, soft_timeout_sighandler)
    dog = Watchdog(lambda: done.append("killed"))
    signal.signal(signal.SIGUSR1, dog.on_signal)
    monkeypatch.setattr(time_limits, "_of_process", (os.getpid(), dog))
    yield done
    signal.signal(signal.SIGUSR1, before)


def test_so_many_run_at_once_and_no_more(world: World) -> None:
    began = time.monotonic()
    assert world.run_batch(batch_of(*["sleep 0.2"] * 8)) == "8 done"
    assert 0.4 <= time.monotonic() - began < 1.2
    assert events[:4] == [f"begin {offset}" for offset in range(4)]
    assert count_most_at_once() == 4
    assert world.book.fates == dict.fromkeys(range(8), Fate.DONE)


def test_a_slow_one_holds_back_no_mark_of_another(world: World) -> None:
    seen: list[dict[int, Fate]] = []

    def look() -> None:
        time.sleep(0.3)
        seen.append(dict(world.book.fates))

    looking = threading.Thread(target=look)
    looking.start()
    world.run_batch(batch_of("sleep 0.6", *["sleep 0.01"] * 6))
    looking.join()
    assert seen == [dict.fromkeys(range(1, 7), Fate.DONE)]


def test_settlement_that_waits_stops_no_handler(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = world.book.flush

    def slow(patience: float | None = None) -> None:
        if world.book.unwritten:
            time.sleep(0.3)
        flush(patience)

    monkeypatch.setattr(world.book, "flush", slow)
    world.run_batch(batch_of("sleep 0.01", "sleep 0.1", "sleep 0.15"))
    # While the first was marked the others ran on.
    assert events[-3:] == ["end 0", "end 1", "end 2"]
    assert world.book.fates == dict.fromkeys(range(3), Fate.DONE)


def test_each_has_a_fate_of_its_own(world: World) -> None:
    with pytest.raises(DeadLettered, match=r"3 done, 1 dead"):
        world.run_batch(batch_of("sleep 0.1", "fail 0.02", "sleep 0.01", "dead 0.03", "exit 0", "publish 0.01"))
    assert world.letters == [(3, "permanent")]
    assert world.book.fates == {0: Fate.DONE, 2: Fate.DONE, 3: Fate.DEAD, 5: Fate.DONE}
    assert sorted(offset for _, offsets in world.sent for offset in offsets) == [1, 4]
    assert len(world.published) == 1


def test_what_one_sends_waits_for_no_slow_one(world: World) -> None:
    given: list[float] = []
    send = world.send

    def noted(outgoing: Any) -> Any:
        given.append(time.monotonic())
        return send(outgoing)

    world.send = noted  # type: ignore[method-assign]
    began = time.monotonic()
    world.run_batch(batch_of("publish 0.01", "sleep 0.6"))
    assert len(given) == 1
    assert given[0] - began < 0.4


def test_one_key_runs_in_order_and_the_others_beside_it(world: World) -> None:
    world.run_batch(batch_of(*["sleep 0.1"] * 6, keys="aabb  ", order="key"))
    assert events.index("begin 1") > events.index("end 0")
    assert events.index("begin 3") > events.index("end 2")
    assert set(events[:4]) == {"begin 0", "begin 2", "begin 4", "begin 5"}
    assert world.book.fates == dict.fromkeys(range(6), Fate.DONE)


def test_a_failing_one_takes_the_later_ones_of_its_key_along(world: World) -> None:
    world.run_batch(batch_of("fail 0.05", "sleep 0.01", "sleep 0.01", keys="aab", order="key"))
    assert world.sent == [(4, [0, 1])]
    assert "begin 1" not in events
    assert world.book.fates == {2: Fate.DONE}


def test_a_partition_in_order_runs_in_turn(world: World) -> None:
    world.run_batch(batch_of(*["sleep 0.02"] * 3, order="partition"))
    assert events == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


def test_each_has_its_own_fields_in_the_log_and_its_own_context(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[str, str]] = {}

    async def work(value: Any, message: Message) -> None:
        before = traced.get()
        traced.set(f"trace of {message.offset}")
        await asyncio.sleep(0.05)
        line: Any = type("Line", (), {})()
        WithDelivery().filter(line)
        seen[line.delivery] = (before, traced.get())

    monkeypatch.setattr(beside, "run", work)
    outer = contextvars.copy_context()
    outer.run(traced.set, "trace of the task")
    outer.run(world.run_batch, batch_of(*["sleep 0"] * 3))
    assert seen == {
        f"orders-0-{offset}:unit.beside": ("trace of the task", f"trace of {offset}") for offset in range(3)
    }


def test_its_calls_to_its_task_are_its_own_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(value: Any, message: Message) -> None:
        await asyncio.sleep(0.05 if message.offset else 0.01)
        beside.retry(countdown=5 + message.offset)

    monkeypatch.setattr(beside, "run", work)
    world.run_batch(batch_of(*["sleep 0"] * 2))
    assert world.sent == [(5, [0]), (6, [1])]


def test_a_soft_limit_strikes_the_one_that_overran_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    monkeypatch.setattr(beside, "soft_time_limit", 0.3)
    world.run_batch(batch_of("sleep 60", *["sleep 0.1"] * 5, "sleep 60"))
    assert world.book.fates == dict.fromkeys(range(1, 6), Fate.DONE)
    assert [offsets for _, offsets in world.sent] == [[0, 6]]
    assert all("SoftTimeLimitExceeded" in each.error for batch in world.batches for each in batch.deliveries)
    assert not killed


def test_a_soft_limit_says_in_the_dead_letter_where_the_handler_waited(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    written: list[str] = []
    monkeypatch.setattr(world, "dead_letter", lambda one, dead, group: written.append(dead.failure.error_traceback))
    monkeypatch.setattr(beside, "soft_time_limit", 0.2)
    batch = batch_of("sleep 60", "sleep 60", attempts=Attempts(failed=1))
    with pytest.raises(DeadLettered):
        world.run_batch(batch)
    assert ["await asyncio.sleep(seconds)" in text for text in written] == [True, True]


def test_a_soft_limit_is_raised_in_the_one_whose_code_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    monkeypatch.setattr(beside, "soft_time_limit", 0.3)
    began = time.monotonic()
    world.run_batch(batch_of("pass 0", "spin 30"))
    assert time.monotonic() - began < 5
    assert world.book.fates == {0: Fate.DONE}
    ((again,),) = [batch.deliveries for batch in world.batches]
    assert "SoftTimeLimitExceeded" in again.error


def test_a_slow_retry_when_harms_no_handler_at_its_soft_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    def when(message: Message, error: Exception, attempts: Any) -> float:
        time.sleep(1.3)
        return 7

    monkeypatch.setattr(beside, "policy", replace(beside.policy, retry_when=when))
    monkeypatch.setattr(beside, "soft_time_limit", 1.0)
    world.run_batch(batch_of("fail 0.01", *["sleep 0.3"] * 8))
    assert world.sent == [(7, [0])]
    assert world.book.fates == dict.fromkeys(range(1, 9), Fate.DONE)


def test_a_hard_limit_is_charged_to_the_one_that_overran_and_what_is_done_is_marked_first(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    noted: list[int | None] = []
    overran: list[bool] = []

    class Notes:
        def running(self, offset: int | None) -> None:
            noted.append(offset)

        def overran(self) -> None:
            overran.append(True)

        def done(self, offset: int) -> None:
            """Not asked for here."""

    make = BatchState.__init__
    monkeypatch.setattr(BatchState, "__init__", lambda self, batch, progress: make(self, batch, Notes()))  # type: ignore[arg-type]
    monkeypatch.setattr(beside, "time_limit", 0.3)
    world.run_batch(batch_of("sleep 0.7", *["sleep 0.2"] * 6))
    assert killed == ["killed"]
    # Alone or not, it is the one; and nothing is noted over it until the process is gone.
    assert (noted[-1], overran) == (0, [True])


def test_a_hard_limit_that_a_retry_when_overruns_is_charged_to_its_delivery_and_not_to_the_one_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    charged: list[int] = []

    def when(message: Message, error: Exception, attempts: Any) -> float:
        time.sleep(0.7)
        return 7

    monkeypatch.setattr(BatchState, "charge", lambda self, delivery: charged.append(delivery.message.offset))
    monkeypatch.setattr(beside, "policy", replace(beside.policy, retry_when=when))
    monkeypatch.setattr(beside, "time_limit", 0.4)
    world.run_batch(batch_of("sleep 0.3", "fail 0.2"))
    assert (killed, charged) == (["killed"], [1])


def test_a_process_lost_while_several_ran_is_charged_to_none_and_while_one_ran_to_that_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[int | None, int]] = []

    def note(self: BatchState, delivery: Delivery | None) -> None:
        running = sum(1 if event.startswith("begin") else -1 for event in events)
        noted.append((None if delivery is None else delivery.message.offset, running))

    monkeypatch.setattr(BatchState, "note_only_running", note)
    world.run_batch(batch_of("sleep 0.2", "sleep 0.05"))
    assert [offset for offset, _ in noted] == [0, None, 0, None]


def test_after_a_lost_process_one_runs_at_a_time(world: World) -> None:
    world.run_batch(batch_of(*["sleep 0.02"] * 2, keys="ab", order="key"), lost=1)
    assert events == ["begin 0", "end 0", "begin 1", "end 1"]


def test_a_process_that_is_told_to_end_cancels_what_runs_and_marks_what_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[int] = []

    async def work(value: Any, message: Message) -> None:
        if message.offset == 0:
            return
        if message.offset == 1:
            await asyncio.sleep(0.1)
            monkeypatch.setattr(handler_attempt, "terminate_handler_fired", lambda: True)
            raise SystemExit
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(message.offset)

    monkeypatch.setattr(beside, "run", work)
    with pytest.raises(SystemExit):
        world.run_batch(batch_of(*["sleep 0"] * 4))
    assert sorted(cancelled) == [2, 3]
    assert world.book.fates == {0: Fate.DONE}
    assert (world.sent, world.letters) == ([], [])
    event_loop.close_loop()


def test_a_signal_to_end_that_comes_while_all_wait_cancels_them_and_marks_what_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: Any) -> None:
        monkeypatch.setattr(handler_attempt, "terminate_handler_fired", lambda: True)
        raise SystemExit(143)

    before = signal.signal(signal.SIGUSR2, end)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR2))
    timer.start()
    try:
        with pytest.raises(SystemExit, match="143"):
            world.run_batch(batch_of("sleep 0", *["sleep 60"] * 3))
    finally:
        timer.join()
        signal.signal(signal.SIGUSR2, before)
    assert world.book.fates == {0: Fate.DONE}
    assert (world.sent, world.letters) == ([], [])
    event_loop.close_loop()


def test_who_asks_to_stop_lets_those_that_run_end_and_nothing_more_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HaltGuard, "stop", lambda *_: None)
    with pytest.raises(ComeBack) as caught:
        world.run_batch(batch_of("halt 0.05", *["sleep 0.2"] * 3, "sleep 0", "sleep 0"))
    assert world.book.fates == dict.fromkeys([1, 2, 3], Fate.DONE)
    assert [event for event in events if event in ("begin 4", "begin 5")] == []
    assert caught.value.headers is not None


def test_a_message_that_another_worker_has_settles_what_succeeds_and_judges_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[int] = []

    def check(self: Any) -> None:
        checks.append(1)
        if len(checks) > 5:
            raise GivenAway("gone")

    monkeypatch.setattr(MessageLease, "check", check)
    result = world.run_batch(batch_of("sleep 0.02", "fail 0.05", "sleep 0.1", "dead 0.1", "sleep 0", "sleep 0"))
    assert result.startswith("given away")
    assert world.book.fates == {0: Fate.DONE, 2: Fate.DONE}
    assert (world.sent, world.letters) == ([], [])


def test_what_is_done_while_the_ledger_does_not_answer_is_done_where_it_is_redelivered(world: World) -> None:
    world.book.silent = True
    with pytest.raises(ComeBack) as caught:
        world.run_batch(batch_of("sleep 0.02", "sleep 0.1", "sleep 0.1", "sleep 0.1", "sleep 0"))
    again = from_header("unit.beside", caught.value.headers[HEADER])
    assert [(each.message.offset, each.ended) for each in again.deliveries] == [
        (0, "done"), (1, "done"), (2, "done"), (3, "done"), (4, ""),
    ]  # fmt: skip
    assert "begin 4" not in events


def test_when_its_time_is_over_the_rest_goes_back_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "batch_seconds", 0.1)
    back: list[float] = []
    send_on = world.send_on

    def noted(*args: Any, **options: Any) -> None:
        back.append(time.monotonic())
        send_on(*args, **options)

    monkeypatch.setattr("tasks.execution.retry_schedule.send_on", noted)
    began = time.monotonic()
    world.run_batch(batch_of("sleep 0.8", *["sleep 0.15"] * 3, *["sleep 0"] * 3))
    assert world.sent == [(0, [4, 5, 6])]
    assert back[0] - began < 0.6
    assert world.book.fates == dict.fromkeys(range(4), Fate.DONE)


def test_what_went_back_beside_a_slow_one_runs_once_though_its_worker_was_killed_if_it_has_ended_by_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "batch_seconds", 0.05)
    message = batch_of("sleep 0.3", *["sleep 0.1"] * 3, *["sleep 0"] * 3)
    world.run_batch(message)
    (rest,) = world.batches
    # Killed while the slow one ran: the ledger has the mark of nobody that was with it in the process.
    world.book = FakeBook(set())
    world.run_batch(rest)
    events.clear()
    world.batches.clear()
    world.run_batch(message, restored=1)
    for batch in [*world.batches]:
        world.run_batch(batch)
    assert [event for event in events if event.startswith("begin")] == [f"begin {offset}" for offset in range(4)]
    assert world.book.fates == dict.fromkeys(range(7), Fate.DONE)


def test_in_an_order_the_rest_goes_back_behind_what_it_waits_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "batch_seconds", 0.1)
    world.run_batch(batch_of("fail 0.3", "sleep 0", "sleep 0.15", "sleep 0", keys="aabb", order="key"))
    assert sorted(world.sent) == [(0, [3]), (4, [0, 1])]


def test_an_open_breaker_admits_one_trial_request_and_its_neighbours_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = BreakerStatus("open", "probing", since=1.0, granted=False)
    asked: list[str] = []

    class Breakers:
        def read_statuses(self, terms: Any) -> dict[str, BreakerStatus]:
            return {"unit.bank": known}

        def admit(self, dependency: str, terms: Any, trial: str) -> BreakerStatus:
            asked.append(trial)
            return BreakerStatus("probing", "probing", since=1.0, granted=len(asked) == 1)

        def report(self, dependency: str, terms: Any, results: Any, trial: str) -> BreakerStatus:
            asked.append(f"reported {trial}")
            return known

    breakers: Any = Breakers()
    monkeypatch.setattr(beside, "breaker", Breaker("unit.bank"))
    monkeypatch.setattr(
        BreakerGuard, "for_task", lambda task, group: BreakerGuard(task.breaker, "unit", breakers, lambda _: None)
    )
    monkeypatch.setattr(BreakerGuard, "_seen", {})
    world.run_batch(batch_of(*["sleep 0.1"] * 3))
    assert events == ["begin 0", "end 0"]
    assert asked[-1] == f"reported {asked[0]}"
    assert [offsets for _, offsets in world.sent] == [[1, 2]]


def test_under_threads_too_they_run_side_by_side(world: World) -> None:
    results: list[Any] = []

    def work() -> None:
        results.append(world.run_batch(batch_of(*["sleep 0.1"] * 4)))
        event_loop.close_loop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == ["4 done"]
    assert events[:4] == [f"begin {offset}" for offset in range(4)]


def test_what_runs_for_long_without_an_await_holds_up_others_and_all_are_done(world: World) -> None:
    assert world.run_batch(batch_of("spin 0.2", "sleep 0.01", "spin 0.2")) == "3 done"


def test_one_alone_runs_as_it_always_did(world: World) -> None:
    assert world.run_batch(batch_of("sleep 0.01")) == "charged 0"


def test_the_measured_pace_is_that_of_all_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[Any] = []
    monkeypatch.setattr("tasks.worker.delivery_cost.note_cost", lambda ledger, name, cost, at_once: costs.append(cost))
    world.run_batch(batch_of(*["sleep 0.1"] * 4))
    assert costs[0].deliveries == 4
    assert 0.1 <= costs[0].seconds < 0.35


# The lanes


def delivery(offset: int, key: bytes | None = None) -> Delivery:
    return Delivery(Message("orders", 0, offset, key=key), "unit.beside")


def taken(lanes: DeliveryLanes) -> list[int]:
    found = []
    while (each := lanes.take()) is not None:
        found.append(each.message.offset)
    return found


def test_without_an_order_all_may_start() -> None:
    assert taken(DeliveryLanes([delivery(0, b"a"), delivery(1, b"a")], None)) == [0, 1]


def test_the_next_of_a_key_starts_when_the_one_before_it_has_ended() -> None:
    first, second, third = delivery(0, b"a"), delivery(1, b"a"), delivery(2, b"a")
    lanes = DeliveryLanes([first, second, delivery(3), third, delivery(4)], "key")
    assert taken(lanes) == [0, 3, 4]
    lanes.release(first)
    assert taken(lanes) == [1]
    lanes.release(second)
    lanes.release(delivery(3))
    assert [each.message.offset for each in lanes.take_rest()] == [2]
    assert lanes.take_rest() == []


# Automatic


@handler("orders", name="unit.waits", batch=50, concurrency="auto", max_retries=0)
async def waits(value: Any, message: Message) -> None:
    events.append(f"begin {message.offset}")
    match value:
        case {"block": seconds}:
            time.sleep(seconds)
    await asyncio.sleep(0.01)
    events.append(f"end {message.offset}")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ran at once, as each batch told."""
    told: list[int] = []
    monkeypatch.setattr(concurrency_meter, "_of_process", None)
    monkeypatch.setattr(
        "tasks.worker.delivery_cost.note_cost", lambda ledger, name, cost, at_once: told.append(at_once)
    )
    return told


def run_waits(world: World, *values: str) -> None:
    events.clear()
    world.book = FakeBook(set())
    world.run_batch(batch_of(*values, name="unit.waits"))


def test_one_that_waits_runs_more_at_once_in_its_next_batch_and_tells_how_many(world: World, found: list[int]) -> None:
    at_once = []
    for _ in range(3):
        run_waits(world, *["sleep 0"] * 20)
        at_once.append(count_most_at_once())
    assert at_once == [1, 1, 2]
    assert found[:2] == [1, 2]


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize(("value", "share"), [("sleep 0", (0.0, 0.5)), ("block 0.03", (0.5, 1.0))])
def test_code_that_blocks_the_loop_counts_as_busy_and_what_waits_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int, value: str, share: tuple[float, float]
) -> None:
    noted: list[tuple[HandlerTime, int]] = []
    monkeypatch.setattr(concurrency_meter, "find_concurrency", lambda handler: number)
    monkeypatch.setattr(
        concurrency_meter, "note_batch", lambda handler, latest, at_once, overran: noted.append((latest, at_once))
    )
    began = time.monotonic()
    run_waits(world, *[value] * 8)
    took = time.monotonic() - began
    ((latest, at_once),) = noted
    assert (latest.runs, at_once) == (8, number)
    assert share[0] <= latest.busy / min(took, latest.seconds) <= share[1]


def test_a_run_that_overruns_its_soft_limit_beside_others_halves_the_number(
    world: World, found: list[int], monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    known = FoundConcurrency(number=8, cold=0)
    monkeypatch.setattr(concurrency_meter, "_of_process", (os.getpid(), {"unit.waits": known}))
    monkeypatch.setattr(waits, "soft_time_limit", 0.2)
    with pytest.raises(DeadLettered):
        run_waits(world, "block 0.4", *["sleep 0"] * 7)
    assert found == [4]


def test_a_loop_of_the_users_is_kept_and_the_processor_is_measured_in_its_place(
    world: World, found: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OwnLoop(asyncio.SelectorEventLoop):
        """As uvloop's policy makes one."""

    event_loop.close_loop()
    monkeypatch.setattr(asyncio, "new_event_loop", OwnLoop)
    for _ in range(2):
        run_waits(world, *["sleep 0"] * 20)
    assert type(event_loop.find_loop()) is OwnLoop
    assert event_loop.read_waited() is None
    assert found == [1, 2]
    event_loop.close_loop()


def test_the_partition_in_order_says_nothing_of_how_many_could_run(world: World, found: list[int]) -> None:
    for _ in range(3):
        world.book = FakeBook(set())
        world.run_batch(batch_of(*["sleep 0"] * 24, name="unit.waits", order="partition"))
    assert found == [1, 1, 1]


def test_a_handler_that_says_nothing_runs_one_at_a_time_and_nothing_of_it_is_measured() -> None:
    async def silent(value: Any) -> None: ...

    # Side by side its deliveries may wait for each other: for a pool, or for code that blocks.
    assert handler("orders", name="unit.silent")(silent).concurrency == 1
    del app.tasks["unit.silent"]


def find_number(
    known: FoundConcurrency, batches: int, alone: float, busy: float, pool: int = 1_000
) -> tuple[FoundConcurrency, set[int]]:
    """What is found in so many batches, and which numbers ran, of runs that need the loop and a place in a pool."""
    ran = set()
    for _ in range(batches):
        number = known.number
        ran.add(number)
        each = alone * max(1, number / pool, number * busy / alone)
        known = add_batch(known, HandlerTime(24, 24 * each, 24 * busy), number, overran=False)
    return known, ran


@pytest.mark.parametrize(
    ("alone", "busy", "pool", "number"),
    [
        (10e-3, 10e-3, 1_000, {1}),
        (10e-3, 5e-3, 1_000, {1}),
        (10e-3, 1e-3, 1_000, {8}),
        (10e-3, 0.01e-3, 1_000, {100}),
        (10e-3, 0.0, 1_000, {100}),
        (0.3, 0.1e-3, 5, {4}),
        (0.3, 0.1e-3, 1, {1}),
        (0.3, 0.1e-3, 40, {32}),
    ],
    ids=["computes", "half", "waits", "waits long", "does nothing else", "pool of 5", "pool of 1", "pool of 40"],
)
def test_so_many_run_at_once_as_the_loop_and_what_they_share_have_room_for(
    alone: float, busy: float, pool: int, number: set[int]
) -> None:
    known, ran = find_number(FoundConcurrency(), 120, alone, busy, pool)
    assert {known.number} == number
    # Twice as many were tried at most.
    assert max(ran) <= 2 * known.number


def test_a_number_that_is_too_large_by_now_is_found_again() -> None:
    known, _ = find_number(FoundConcurrency(), 120, 0.3, 0.1e-3, 80)
    assert known.number == 64
    known, _ = find_number(known, 2_000, 0.3, 0.1e-3, 5)
    assert find_number(known, 400, 0.3, 0.1e-3, 5)[1] <= {2, 4, 8}


def test_too_few_at_once_and_the_first_runs_say_nothing() -> None:
    known = FoundConcurrency(number=8, cold=0)
    assert add_batch(known, HandlerTime(100, 1.0, 0.0), 7, overran=False) == known
    cold = add_batch(FoundConcurrency(), HandlerTime(COLD_RUNS, 9.0, 0.0), 1, overran=False)
    assert cold == FoundConcurrency(cold=0)


def test_an_overrun_of_one_that_ran_alone_is_its_own() -> None:
    known = FoundConcurrency(number=8, cold=0)
    assert add_batch(known, HandlerTime(1, 4.0, 0.0), 1, overran=True).number == 8
    assert add_batch(known, HandlerTime(8, 9.0, 0.0), 8, overran=True).number == 4


# The option


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"concurrency": 0}, 'concurrency takes "auto" or a whole number from 1 to 1,000; it was given 0'),
        ({"concurrency": True}, "it was given True"),
        ({"concurrency": "many"}, "it was given 'many'"),
        ({"concurrency": 5, "batch": 4}, "batch=4 gives a process fewer deliveries at a time than concurrency=5"),
        ({"concurrency": 5, "rate_limit": "10/s"}, "a rate_limit runs deliveries one by one"),
        ({"concurrency": 5, "bulk": 9}, "bulk=9 gives one call many messages, concurrency=5 runs one call for each"),
        ({"concurrency": "auto", "rate_limit": "10/s"}, "a rate_limit runs deliveries one by one"),
        ({"concurrency": "auto", "bulk": 9}, "bulk=9 gives one call many messages, concurrency='auto' runs one call"),
    ],
)
def test_a_wrong_concurrency_is_refused_with_its_reason(options: Any, why: str) -> None:
    async def wrong(value: Any) -> None: ...

    with pytest.raises(HandlerError, match=f"^unit.wrong: .*{why}"):
        handler("orders", name="unit.wrong", **options)(wrong)


@pytest.mark.parametrize("concurrency", [5, "auto"])
def test_a_handler_that_is_not_async_is_refused_a_concurrency(concurrency: Any) -> None:
    def wrong(value: Any) -> None: ...

    with pytest.raises(HandlerError, match=f"concurrency={concurrency!r} is for async def handlers, and this function"):
        handler("orders", name="unit.wrong", concurrency=concurrency)(wrong)


def test_a_time_limit_below_a_second_is_no_reason_to_run_one_by_one() -> None:
    assert beside.one_by_one == ""


@pytest.mark.parametrize("order", ["", "key"])
def test_what_has_a_halted_key_waits_at_its_gate_and_holds_no_place_beside_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    halt_keys(monkeypatch, b"b")
    values = ["sleep 0.01"] * 6
    assert world.run_batch(batch_of(*values, keys="bababc", order=order or None)).startswith("3 done, 3 held")
    assert (world.held, sorted(world.book.fates)) == ([("held:b", [0, 2, 4])], [1, 3, 5])
    assert not {"begin 0", "begin 2", "begin 4"} & {*events}


def test_a_dead_letter_that_holds_keeps_what_is_behind_it_from_running_beside_the_others(world: World) -> None:
    world.book.holds_dead = True
    with pytest.raises(DeadLettered):
        world.run_batch(batch_of("dead 0", "sleep 0", "sleep 0.05", "sleep 0", keys="bbab", order="key"))
    assert world.book.fates == {0: Fate.DEAD, 2: Fate.DONE}
    (waiting,) = world.batches
    assert [(each.message.offset, each.after) for each in waiting.deliveries] == [(1, 0), (3, 0)]
    assert not {"begin 1", "begin 3"} & {*events}
