"""A handler with a limit: what gets no start waits without an attempt, and no lease outlives its run."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.ledger.ledger_scripts import LeaseEnd
from bridge.ledger.limit_state import LimitedDelivery, LimitLedger, LimitTerms, find_lane
from tasks import Limit, app, handler
from tasks.execution import batch_run, delivery_admission, limit_guard, retry_schedule
from tasks.execution.limit_guard import LeaseRenewal, LimitGuard
from tasks.worker.delivery_cost import DeliveryLaps
from tests.unit.test_batch_run import World

ran: list[int] = []
RATE = Limit("unit-rate", per_second=50, by=lambda message: message.key)
LEASES = Limit("unit-leases", concurrency=2)


def work(value: bytes, message: Message) -> str:
    ran.append(message.offset)
    if value == b"fail":
        raise ConnectionError
    return "worked"


@handler("orders", name="unit.rated", codec=bytes, batch=9, max_retries=1, retry_jitter=False, limit=RATE)
def rated(value: bytes, message: Message) -> str:
    return work(value, message)


@handler("orders", name="unit.leased", codec=bytes, batch=9, max_retries=1, retry_jitter=False, limit=LEASES)
def leased(value: bytes, message: Message) -> str:
    return work(value, message)


@handler("orders", name="unit.slow", codec=bytes, max_retries=1, limit=RATE)
def slow(value: bytes, message: Message) -> str:
    return work(value, message)


class FakeLimits:
    """A limit in memory that lets so many start, and lets the others wait 1 s, 2 s and so on."""

    def __init__(self) -> None:
        self.left, self.is_silent = 0, False
        self.claims: list[list[int]] = []
        self.released: list[str] = []
        self.unused = 0
        self.renewed: list[str] = []

    def claim(
        self, name: str, terms: LimitTerms, deliveries: Sequence[LimitedDelivery], takes: float = 1.0
    ) -> list[float]:
        if self.is_silent:
            raise LedgerUnavailable("no answer")
        self.claims.append([each.lane for each in deliveries])
        waits = [0.0] * min(self.left, len(deliveries))
        self.left -= len(waits)
        return waits + [float(number) for number in range(1, len(deliveries) - len(waits) + 1)]

    def release(self, name: str, terms: LimitTerms, ended: Sequence[LimitedDelivery], unused: int = 0) -> None:
        self.released += [each.identity for each in ended]
        self.unused += unused

    def renew(self, name: str, running: Sequence[LimitedDelivery]) -> None:
        self.renewed += [each.identity for each in running]

    def lease_end(self, name: str, delivery: LimitedDelivery) -> LeaseEnd:
        return LeaseEnd(name, delivery.lease)


class LimitedWorld(World):
    """What runs of batches of one handler have done, one after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.limits = FakeLimits()
        limits: Any = self.limits
        book: Any = self.book
        book.leases = {}
        done, flush = book.done, book.flush

        def mark_done(offset: int, *, now: bool = False) -> None:
            done(offset, now=now or bool(book.leases))

        def flush_marks(patience: float | None = None) -> None:
            marked = [*book.unwritten]
            flush(patience)
            self.marked_leases += [lease.member for at in marked if (lease := book.leases.pop(at, None)) is not None]

        self.marked_leases: list[str] = []
        book.done, book.flush = mark_done, flush_marks
        monkeypatch.setattr(limit_guard, "start_thread", lambda name, work: None)
        monkeypatch.setattr(
            LimitGuard,
            "for_batch",
            lambda task, fates, group, order, laps, within: LimitGuard(
                task, fates, task.limit, limits, group, order, laps, within
            ),
        )
        monkeypatch.setattr(limit_guard, "find_effective_limit", lambda task, limit, group: limit.terms)
        monkeypatch.setattr(LimitGuard, "_takes", {})
        ran.clear()

    def deliver(self, handler: str, *values: bytes, keys: bytes = b"", order: str | None = None) -> Any:
        deliveries = tuple(
            Delivery(Message("orders", 0, offset, key=bytes([keys[offset]]) if keys else None, value=value), handler)
            for offset, value in enumerate(values)
        )
        return self.run_batch(Batch(handler, "orders", 0, deliveries, order=order))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> LimitedWorld:
    return LimitedWorld(monkeypatch)


def test_what_gets_no_start_waits_in_celery_for_its_turn_and_spends_no_attempt(world: LimitedWorld) -> None:
    world.limits.left = 2
    assert world.deliver("unit.rated", *[b""] * 5).startswith("2 done, 3 again")
    assert ran == [0, 1]
    assert sorted(offset for _, offsets in world.sent for offset in offsets) == [2, 3, 4]
    assert not any(sum(delivery.attempts) for batch in world.batches for delivery in batch.deliveries)


def test_a_single_one_too(world: LimitedWorld) -> None:
    world.deliver("unit.rated", b"")
    assert (ran, world.sent) == ([], [(1.0, [0])])


def test_after_the_first_that_waits_the_rest_claims_in_one_step(world: LimitedWorld) -> None:
    world.deliver("unit.rated", *[b""] * 9)
    assert [len(claim) for claim in world.limits.claims] == [1, 8]


def test_a_fast_handler_claims_many_starts_in_one_step_and_gives_back_what_it_does_not_use(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeliveryLaps, "pace", 1_000.0)
    world.limits.left = 9
    world.deliver("unit.rated", *[b""] * 9)
    assert ([len(claim) for claim in world.limits.claims], len(ran)) == ([9], 9)
    world.limits.left = 9
    ran.clear()
    world.book.fates.clear()
    monkeypatch.setattr(rated, "batch_seconds", -1)
    world.deliver("unit.rated", *[b""] * 9)
    assert (len(ran), world.limits.unused) == (1, 8)


def test_those_far_from_their_turn_wait_in_one_message_however_long_a_run_takes(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: dict[float, int] = {}

    def note_most(app: Any, batch: Batch, delay: float, info: Any, most: int, *rest: Any) -> None:
        together[delay] = most

    monkeypatch.setattr(retry_schedule, "send_on", note_most)
    monkeypatch.setattr(LimitGuard, "_takes", {"unit.slow": 2.0})
    world.deliver("unit.slow", *[b""] * 7)
    assert together == {1.0: 1, 2.0: 1, 3.0: 1, 4.0: 1, 5.0: 50, 6.0: 50}


def test_in_an_order_each_claims_by_itself_and_nothing_overtakes_the_first_that_waits(world: LimitedWorld) -> None:
    world.limits.left = 1
    world.deliver("unit.rated", *[b""] * 4, order="partition")
    assert (ran, world.sent) == ([0], [(1.0, [1, 2, 3])])
    assert [len(claim) for claim in world.limits.claims] == [1, 1]


def test_each_key_is_a_lane_of_its_own(world: LimitedWorld) -> None:
    world.deliver("unit.rated", *[b""] * 3, keys=b"aba")
    a, b = (find_lane("unit.rated", key) for key in (b"a", b"b"))
    assert [lane for claim in world.limits.claims for lane in claim] == [a, b, a]


def test_a_key_that_cannot_be_found_fails_its_delivery(world: LimitedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_key(message: Message) -> bytes | None:
        raise ValueError("no such key")

    monkeypatch.setattr(RATE, "find_key", find_key)
    world.limits.left = 9
    world.deliver("unit.rated", b"", b"")
    assert ran == []
    assert {delivery.attempts.failed for batch in world.batches for delivery in batch.deliveries} == {1}


def test_while_the_ledger_does_not_answer_nothing_starts(world: LimitedWorld) -> None:
    world.limits.is_silent = True
    world.deliver("unit.rated", b"", b"")
    assert (ran, world.sent) == ([], [(delivery_admission.LEDGER_DELAY, [0, 1])])


def test_a_lease_ends_with_the_mark_or_with_the_failure(world: LimitedWorld) -> None:
    world.limits.left = 9
    world.deliver("unit.leased", b"", b"fail", b"")
    assert ran == [0, 1, 2]
    assert [member.partition("|")[2] for member in world.marked_leases] == [
        "orders-0-0:unit.leased",
        "orders-0-2:unit.leased",
    ]
    assert world.limits.released == ["orders-0-1:unit.leased"]
    LeaseRenewal.get_renewal().renew()
    assert world.limits.renewed == []


def test_a_lease_is_renewed_while_its_delivery_runs(world: LimitedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.limits.left = 9
    monkeypatch.setattr(f"{__name__}.work", lambda value, message: LeaseRenewal.get_renewal().renew())
    world.deliver("unit.leased", b"")
    assert world.limits.renewed == ["orders-0-0:unit.leased"]


def test_a_redis_that_lost_its_leases_has_them_again_within_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Woken(Exception):
        """Ends the thread's loop."""

    def wake(seconds: float) -> None:
        assert seconds <= 3
        raise Woken

    monkeypatch.setattr(limit_guard, "time", SimpleNamespace(sleep=wake))
    with pytest.raises(Woken):
        LeaseRenewal.get_renewal()._renew_for_ever()


def test_a_lease_that_ends_while_it_is_renewed_stays_ended(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewal, limited = LeaseRenewal.get_renewal(), LimitedDelivery(1, "orders-0-7:unit.leased")
    limits: Any = world.limits
    monkeypatch.setattr(limits, "renew", lambda name, running: renewal.drop("unit-leases", limited))
    renewal.add(limits, "unit-leases", limited)
    renewal.renew()
    assert limits.released == [limited.identity]


def test_a_redis_that_does_not_answer_keeps_no_lease_of_another_from_being_renewed(world: LimitedWorld) -> None:
    class SilentLimits(FakeLimits):
        def renew(self, name: str, running: Sequence[LimitedDelivery]) -> None:
            raise LedgerUnavailable("no answer")

    renewal, limited = LeaseRenewal.get_renewal(), LimitedDelivery(1, "orders-0-7:unit.leased")
    ledgers: list[Any] = [SilentLimits(), world.limits]
    for number, limits in enumerate(ledgers):
        renewal.add(limits, f"unit-{number}", limited)
    renewal.renew()
    assert world.limits.renewed == [limited.identity]
    for number in range(2):
        renewal.drop(f"unit-{number}", limited)


def test_leases_are_for_what_runs_so_those_claimed_ahead_are_given_back(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, answers = world.limits.claim, iter([0])

    def claim_first_in_vain(*args: Any) -> list[float]:
        world.limits.left = next(answers, 9)
        return claim(*args)

    monkeypatch.setattr(world.limits, "claim", claim_first_in_vain)
    world.deliver("unit.leased", *[b""] * 4)
    assert ran == [1, 2, 3]
    assert world.limits.released == ["orders-0-2:unit.leased", "orders-0-3:unit.leased"]
    assert world.limits.unused == 2
    assert [len(claim) for claim in world.limits.claims] == [1, 3, 1, 1]


def test_a_lease_does_not_wait_for_the_messages_of_its_handler(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits.left = 9
    monkeypatch.setattr(world.book, "done", lambda offset, now=False: None)
    world.deliver("unit.leased", b"")
    assert world.limits.released == ["orders-0-0:unit.leased"]


def test_a_wait_that_is_over_when_its_delivery_comes_is_claimed_again(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("tasks.execution.limit_guard.time.monotonic", lambda: now[0])
    monkeypatch.setattr(DeliveryLaps, "pace", 1_000.0)

    def work_long(value: bytes, message: Message) -> None:
        ran.append(message.offset)
        now[0] += 1.5
        world.limits.left = 1

    monkeypatch.setattr(f"{__name__}.work", work_long)
    world.limits.left = 1
    world.deliver("unit.rated", b"", b"", b"")
    assert ran == [0, 1, 2]


def test_a_handler_without_a_limit_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitLedger, "claim", None)
    world = World(monkeypatch)
    world.run(1, 2)
    execution = batch_run.BatchRun(app.tasks["unit.charge"], world.made(1), 0.0)  # type: ignore[arg-type]
    assert execution._limit_guard is limit_guard.NO_LIMIT
