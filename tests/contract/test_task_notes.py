"""Notes of which Celery task carried what: the last one counts, and of what was dropped nothing is claimed."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger import Account, Ledger, task_notes
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.task_notes import TaskNote, find_noted_tasks, find_offset_runs, is_in_runs, note_tasks

CHARGE = Account("orders.handlers.charge", "orders", "topic-id", 3)
NOTIFY = CHARGE._replace(handler="orders.handlers.notify")


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    made = Ledger(redis_url, "cluster", "bridge")
    yield made
    made.close()


@given(st.sets(st.integers(0, 60)).map(sorted), st.integers(0, 60))
def test_an_offset_is_within_the_runs_that_were_made_of_it(offsets: list[int], asked: int) -> None:
    found = find_offset_runs(offsets)
    assert is_in_runs(asked, found) is (asked in offsets)
    assert [offset for first, last in found for offset in range(first, last + 1)] == offsets


def test_the_last_task_of_a_delivery_is_told_and_of_no_other(ledger: Ledger) -> None:
    note_tasks(ledger, [TaskNote("first", CHARGE, range(10)), TaskNote("other", NOTIFY, range(10))])
    note_tasks(ledger, [TaskNote("retry", CHARGE, [2, 3, 7])])
    asked = [(CHARGE, 1), (CHARGE, 3), (CHARGE, 5), (CHARGE, 7), (NOTIFY, 3), (CHARGE, 10)]
    assert find_noted_tasks(ledger, asked) == {
        (CHARGE, 1): "first",
        (CHARGE, 3): "retry",
        (CHARGE, 5): "first",
        (CHARGE, 7): "retry",
        (NOTIFY, 3): "other",
    }


def test_notes_are_read_in_pieces(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_notes, "_PIECE", 3)
    note_tasks(ledger, [TaskNote(f"task {n}", CHARGE, [n]) for n in range(12)])
    assert find_noted_tasks(ledger, [(CHARGE, n) for n in range(13)]) == {(CHARGE, n): f"task {n}" for n in range(12)}


def test_the_notes_of_a_group_are_no_more_than_so_many_and_expire(
    ledger: Ledger, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_notes, "KEPT", 200)
    note_tasks(ledger, [TaskNote(f"task {n}", CHARGE, [n]) for n in range(2_000)])
    found = find_noted_tasks(ledger, [(CHARGE, 0), (CHARGE, 1_999)])
    # Of what is in no note nothing is claimed.
    assert found == {(CHARGE, 1_999): "task 1999"}
    with ledger.asking("count") as pipe:
        pipe.xlen(ledger_key("cluster", "bridge", "carriers"))
        pipe.ttl(ledger_key("cluster", "bridge", "carriers"))
        count, ttl = pipe.execute()
    assert count < 400
    assert 0 < ttl <= ledger.keep
