"""Notes of which Celery task carried what: the last one counts, and of what was dropped nothing is claimed."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger import Account, Ledger, carried
from bridge.ledger.carried import Note, note, noted, runs, within
from bridge.ledger.pages import key

CHARGE = Account("orders.handlers.charge", "orders", "topic-id", 3)
NOTIFY = CHARGE._replace(handler="orders.handlers.notify")


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    made = Ledger(redis_url, "cluster", "bridge")
    yield made
    made.close()


@given(st.sets(st.integers(0, 60)).map(sorted), st.integers(0, 60))
def test_an_offset_is_within_the_runs_that_were_made_of_it(offsets: list[int], asked: int) -> None:
    found = runs(offsets)
    assert within(asked, found) is (asked in offsets)
    assert [offset for first, last in found for offset in range(first, last + 1)] == offsets


def test_the_last_task_of_a_delivery_is_told_and_of_no_other(ledger: Ledger) -> None:
    note(ledger, [Note("first", CHARGE, range(10)), Note("other", NOTIFY, range(10))])
    note(ledger, [Note("retry", CHARGE, [2, 3, 7])])
    asked = [(CHARGE, 1), (CHARGE, 3), (CHARGE, 5), (CHARGE, 7), (NOTIFY, 3), (CHARGE, 10)]
    assert noted(ledger, asked) == {
        (CHARGE, 1): "first",
        (CHARGE, 3): "retry",
        (CHARGE, 5): "first",
        (CHARGE, 7): "retry",
        (NOTIFY, 3): "other",
    }


def test_notes_are_read_in_pieces(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "_PIECE", 3)
    note(ledger, [Note(f"task {n}", CHARGE, [n]) for n in range(12)])
    assert noted(ledger, [(CHARGE, n) for n in range(13)]) == {(CHARGE, n): f"task {n}" for n in range(12)}


def test_the_notes_of_a_group_are_no_more_than_so_many_and_expire(
    ledger: Ledger, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "KEPT", 200)
    note(ledger, [Note(f"task {n}", CHARGE, [n]) for n in range(2_000)])
    found = noted(ledger, [(CHARGE, 0), (CHARGE, 1_999)])
    # Of what is in no note nothing is claimed.
    assert found == {(CHARGE, 1_999): "task 1999"}
    with ledger.asking("count") as pipe:
        pipe.xlen(key("cluster", "bridge", "carriers"))
        pipe.ttl(key("cluster", "bridge", "carriers"))
        count, ttl = pipe.execute()
    assert count < 400
    assert 0 < ttl <= ledger.keep
