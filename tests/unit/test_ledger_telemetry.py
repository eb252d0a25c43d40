"""What only observes costs deliveries nothing: notes wait, are bounded, and their faults end where they are."""

import logging
import threading
from typing import Any

import pytest

from bridge.errors import LedgerUnavailable
from bridge.ledger import Account
from bridge.ledger.task_notes import SINGLE_TASKS, TaskNote
from tasks.logs import harmless, harmless_logger, make_harmless
from tasks.worker import ledger_telemetry as module
from tasks.worker.ledger_telemetry import MOST_ALONE, MOST_NOTES, CarrierNotes

ACCOUNT = Account("h", "orders", "id", 0)
LEDGERS: Any = ("one ledger", "another")


class Kept:
    """What was written, and the timers that would write it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[tuple[Any, list[str]]] = []
        self.timers: list[Any] = []
        self.offsets: list[list[int]] = []
        self.down = False
        monkeypatch.setattr(module, "note_tasks", self.note)
        monkeypatch.setattr(threading, "Timer", self.timer)
        self.notes = CarrierNotes()

    def note(self, ledger: Any, notes: list[TaskNote]) -> None:
        if self.down:
            raise LedgerUnavailable("no answer")
        self.offsets += [list(each.offsets) for each in notes]
        self.written.append((ledger, [each.task_id for each in notes]))

    def timer(self, seconds: float, act: Any) -> Any:
        timer = threading.Thread(target=act)
        timer.start = lambda: self.timers.append(act)  # type: ignore[method-assign]
        return timer

    def add(self, task_id: str, ledger: Any = LEDGERS[0]) -> None:
        self.notes.add(ledger, TaskNote(task_id, ACCOUNT, [1]))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def test_notes_wait_for_one_another_and_go_in_one_trip_for_each_ledger(kept: Kept) -> None:
    for task_id, ledger in (("a", LEDGERS[0]), ("b", LEDGERS[1]), ("c", LEDGERS[0])):
        kept.add(task_id, ledger)
    assert kept.written == []
    (write,) = kept.timers
    write()
    assert kept.written == [(LEDGERS[0], ["a", "c"]), (LEDGERS[1], ["b"])]
    kept.add("d")
    assert len(kept.timers) == 2


def test_what_was_alone_in_its_task_shares_a_note_with_a_few_of_its_second(kept: Kept) -> None:
    for offset in (7, 3, *range(100, 100 + 2 * MOST_ALONE)):
        kept.notes.add_alone(LEDGERS[0], ACCOUNT, offset)
    assert len(kept.timers) == 1
    kept.notes.flush()
    ((_, (alone,)),) = kept.written
    assert alone == SINGLE_TASKS
    assert kept.offsets == [[3, 7, *range(100, 98 + MOST_ALONE)]]


def test_of_very_many_the_last_are_dropped(kept: Kept) -> None:
    for number in range(MOST_NOTES + 5):
        kept.add(str(number))
    kept.notes.flush()
    ((_, written),) = kept.written
    assert len(written) == MOST_NOTES


def test_a_ledger_that_does_not_answer_costs_its_notes_alone(kept: Kept) -> None:
    kept.down = True
    kept.add("a")
    kept.notes.flush()
    kept.down = False
    kept.add("b")
    kept.notes.flush()
    assert kept.written == [(LEDGERS[0], ["b"])]


def test_a_process_that_is_forked_writes_none_of_its_parents_notes(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.add("parent")
    monkeypatch.setattr("os.getpid", lambda: -1)
    kept.add("child")
    kept.notes.flush()
    assert kept.written == [(LEDGERS[0], ["child"])]


def test_what_observes_is_tried_and_its_faults_are_told_where_somebody_is_to_be_told() -> None:
    told: list[Exception] = []

    def broken() -> None:
        raise OSError("the disk is full")

    harmless(broken)()
    make_harmless(broken, told.append)()
    assert [str(error) for error in told] == ["the disk is full"]


def test_a_log_whose_filter_raises_loses_its_line_alone() -> None:
    logger = logging.getLogger("tasks.unit")

    def refuses(record: logging.LogRecord) -> bool:
        raise ValueError("a filter of the user's")

    logger.addFilter(refuses)
    try:
        harmless_logger("tasks.unit").warning("%s", "said")
    finally:
        logger.removeFilter(refuses)
