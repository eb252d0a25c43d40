"""The worker's side of two fates: that of a record of a retry topic, and that of its origin."""

import time
from dataclasses import replace
from typing import Any

import pytest

from bridge.formats.delivery import Attempts, Batch, Delivery, Message, Via
from bridge.ledger import RETRY_RECORD, Account, Fate, Mark
from bridge.ledger.fate_rules import follow_fate
from bridge.ledger.ledger_layout import PAGE
from tasks.execution.batch_fates import BatchFates
from tests.memory_ledger import MemoryLedger

ORIGIN = Account("charge", "orders", "t", 3)
OWNS = Account(RETRY_RECORD, "orders.retry.5m", "r", 3)
ENDED = (Fate.DONE, Fate.DEAD, Fate.DISCARDED)


def came(*pairs: tuple[int, int]) -> Batch:
    """A batch of deliveries: the offset of each origin, and of the record by which it came."""
    deliveries = tuple(
        Delivery(Message("orders", 3, offset), "charge", number=1, via=Via("orders.retry.5m", 3, own, "r"))
        for offset, own in pairs
    )
    return Batch("charge", "orders", 3, deliveries, "c", "g", "t")


def book(ledger: MemoryLedger, batch: Batch, other_names: tuple[str, ...] = (), replay_topic: str = "") -> BatchFates:
    return BatchFates(ledger, batch, other_names, replay_topic)  # type: ignore[arg-type]


def fates(ledger: MemoryLedger, account: Account, *offsets: int) -> list[Fate]:
    return [Fate(ledger.fates(account, offset, offset)[0]) for offset in offsets]


@pytest.mark.parametrize(
    ("own", "origin", "skipped"),
    [
        (Fate.HANDED, Fate.PARKED, False),
        (Fate.OPEN, Fate.PARKED, False),
        (Fate.HANDED, Fate.HANDED, False),
        (Fate.HANDED, Fate.OPEN, False),
        (Fate.HANDED, Fate.DEAD, True),
        (Fate.DONE, Fate.PARKED, True),
        (Fate.DONE, Fate.DONE, True),
        (Fate.HANDED, Fate.DONE, True),
        (Fate.HANDED, Fate.DISCARDED, True),
    ],
)
def test_what_came_by_a_retry_topic_is_skipped_where_that_had_its_run_or_its_origin_has_ended(
    own: Fate, origin: Fate, skipped: bool
) -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [9], own), Mark(ORIGIN, [7], origin)])
    assert book(ledger, came((7, 9))).settled([7]) == ({7} if skipped else set())
    # What is skipped is settled where it was handed off: its bridge asks there.
    ended = follow_fate(own, origin) if origin in ENDED else own
    assert fates(ledger, OWNS, 9) == [ended]
    assert fates(ledger, ORIGIN, 7) == [origin]


@pytest.mark.parametrize(
    ("own", "origin", "discarded"),
    [
        (Fate.HANDED, Fate.DISCARDED, True),
        (Fate.DISCARDED, Fate.PARKED, True),
        (Fate.DONE, Fate.DISCARDED, False),
        (Fate.HANDED, Fate.DONE, False),
    ],
)
def test_what_was_discarded_is_told_from_what_ran(own: Fate, origin: Fate, discarded: bool) -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [9], own), Mark(ORIGIN, [7], origin)])
    found = book(ledger, came((7, 9)))
    assert found.settled([7]) == {7}
    assert found.discarded == ({7} if discarded else set())


def test_what_a_person_sent_back_runs_though_it_is_dead_and_so_does_what_of_it_is_parked_again() -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [9], Fate.HANDED), Mark(ORIGIN, [7], Fate.DEAD)])
    retried = came((7, 9))
    assert book(ledger, retried, replay_topic="orders.retry.5m").settled([7]) == set()
    (one,) = retried.deliveries
    replayed = retried.holding([replace(one, attempts=Attempts(failed=1, replayed=1))])
    assert book(ledger, replayed).settled([7]) == set()
    assert book(ledger, retried).settled([7]) == {7}


@pytest.mark.parametrize("origin", [Fate.DONE, Fate.DISCARDED, Fate.DEAD])
def test_what_was_asked_to_run_again_runs_once_whatever_its_origin_and_that_stays_as_it_is(origin: Fate) -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [8, 9], Fate.HANDED), Mark(ORIGIN, [6, 7], origin)])
    batch = came((6, 8), (7, 9))
    one, two = batch.deliveries
    asked = batch.holding([replace(one, again="plan-7"), replace(two, again="plan-7")])
    found = book(ledger, asked)
    assert found.settled([6, 7]) == set()
    found.mark_all([6], Fate.DEAD)
    found.mark_all([7], Fate.PARKED)
    # Of its origin's fate nobody learns how it ended.
    assert fates(ledger, ORIGIN, 6, 7) == [follow_fate(origin, Fate.DEAD), origin]
    assert fates(ledger, OWNS, 8, 9) == [Fate.DEAD, Fate.PARKED]
    # It comes again, as its message was not acknowledged.
    assert book(ledger, asked).settled([6, 7]) == {6, 7}


def test_what_was_done_here_a_moment_ago_runs_again_where_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [9], Fate.HANDED)])
    monkeypatch.setattr(BatchFates, "_bundled", {(ORIGIN, 7): time.monotonic()})
    batch = came((7, 9))
    (one,) = batch.deliveries
    assert book(ledger, batch.holding([replace(one, again="plan-7")])).settled([7]) == set()
    assert book(ledger, batch).settled([7]) == {7}


def test_what_was_done_under_another_name_of_the_handler_is_skipped() -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(OWNS, [9], Fate.HANDED), Mark(ORIGIN._replace(handler="old"), [7], Fate.DONE)])
    assert book(ledger, came((7, 9)), ("old",)).settled([7]) == {7}
    assert fates(ledger, OWNS, 9) == [Fate.DONE]


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.DEAD, Fate.PARKED])
def test_every_end_is_marked_at_the_origin_and_at_the_record_in_one_step(fate: Fate) -> None:
    ledger = MemoryLedger()
    # Retry topics are in the order of their due times, and not of the origins' offsets.
    ledger.write([Mark(OWNS, [2, 9], Fate.HANDED), Mark(ORIGIN, [7, 8], Fate.PARKED)])
    writes: list[int] = []
    write = ledger.write

    def written(items: Any) -> Any:
        writes.append(len(items))
        return write(items)

    ledger.write = written  # type: ignore[method-assign]
    book(ledger, came((7, 9), (8, 2))).mark_all([7, 8], fate)
    assert (fates(ledger, ORIGIN, 7, 8), fates(ledger, OWNS, 2, 9)) == ([fate] * 2, [fate] * 2)
    assert writes == [2]


def test_what_comes_after_another_in_its_order_waits_until_that_has_ended() -> None:
    ledger = MemoryLedger()
    named = [Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP, Fate.PARKED, Fate.HANDED]
    ledger.write([Mark(ORIGIN, [offset], fate) for offset, fate in enumerate(named)])
    assert book(ledger, came((8, 9))).find_finished(range(7)) == {0, 1, 2, 3}
    assert book(ledger, came((8, 9)), ("old",)).find_finished(range(7)) == {0, 1, 2, 3}


@pytest.mark.parametrize("holds_dead", [False, True])
def test_what_waited_so_long_that_the_fate_of_the_one_before_it_has_expired_runs(holds_dead: bool) -> None:
    """A halt may last longer than the ledger keeps a page; what is behind was held for ever."""
    ledger = MemoryLedger()
    ledger.write([Mark(ORIGIN, [PAGE - 1], Fate.DONE), Mark(ORIGIN, [PAGE + 2], Fate.HANDED)])
    ledger.raise_reached({ORIGIN: PAGE + 1})
    ledger.expire(ORIGIN, 0)
    for names in ((), ("old",)):
        worker = book(ledger, came((PAGE + 2, 9)), names)
        worker.holds_dead = holds_dead
        # Of the others one is not committed, and one is open although its page is there.
        assert worker.find_finished([PAGE - 1, PAGE, PAGE + 1]) == {PAGE - 1}


@pytest.mark.parametrize("fate", Fate)
def test_a_running_delivery_is_asked_whether_a_person_has_discarded_it(fate: Fate) -> None:
    ledger = MemoryLedger()
    ledger.write([Mark(ORIGIN, [7], fate)])
    came_first = came((7, 9)).holding([replace(came((7, 9)).deliveries[0], via=None)])
    assert book(ledger, came_first).is_discarded(7) is (fate is Fate.DISCARDED)
    # A delivery that came by a retry topic is left alone by `bridge discard`.
    assert not book(ledger, came((7, 9))).is_discarded(7)
