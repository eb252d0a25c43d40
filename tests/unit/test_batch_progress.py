"""What a process that was lost had done can be read by another, and is never taken for another task's."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from bridge.formats.delivery import Batch, Delivery, Message
from tasks.execution import batch_progress
from tasks.execution.batch_progress import BatchState
from tasks.execution.process_loss import TaskNotes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(batch_progress.FOLDER, str(tmp_path))
    monkeypatch.setattr(batch_progress, "_of_process", None)
    return tmp_path


def _do_some_and_die(task_id: str, done: list[int]) -> None:
    notes = batch_progress.begin_notes(task_id)
    for offset in done:
        notes.running(offset)
        notes.done(offset)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_had_done_is_known_and_of_no_other_task() -> None:
    child = multiprocessing.get_context("fork").Process(target=_do_some_and_die, args=("orders-0-1..9:charge", [3, 7]))
    child.start()
    child.join()
    assert batch_progress.read_notes(child.pid or 0, "orders-0-1..9:charge") == TaskNotes(frozenset({3, 7}), 7)
    assert batch_progress.read_notes(child.pid or 0, "orders-0-1..90:charge") == TaskNotes(frozenset(), None)
    assert batch_progress.read_notes(1, "orders-0-1..9:charge") == TaskNotes(frozenset(), None)


def test_the_next_task_of_a_process_begins_with_nothing_done() -> None:
    first = batch_progress.begin_notes("first")
    first.running(5)
    first.done(5)
    first.running(0)
    assert batch_progress.read_notes(os.getpid(), "first") == TaskNotes(frozenset({5}), 0)
    batch_progress.begin_notes("second")
    assert (
        batch_progress.read_notes(os.getpid(), "first")
        == batch_progress.read_notes(os.getpid(), "second")
        == TaskNotes(frozenset(), None)
    )


def test_what_was_sent_on_is_told_apart_from_what_was_done() -> None:
    made = [Delivery(Message("orders", 0, offset), "charge") for offset in (0, 5, 7)]
    state = BatchState(Batch("charge", "orders", 0, tuple(made)), batch_progress.begin_notes("one"))
    state.note_success(made[0])
    state.remove_sent(made[1:])
    found = batch_progress.read_notes(os.getpid(), "one")
    assert found == TaskNotes(done=frozenset({0}), sent=frozenset({5, 7}))


def test_a_process_that_ends_leaves_no_notes(folder: Path) -> None:
    batch_progress.begin_notes("one").done(5)
    batch_progress.remove_process_notes(os.getpid())
    assert list(folder.iterdir()) == []


def test_more_than_the_notes_hold_is_the_ledgers_to_tell() -> None:
    notes = batch_progress.begin_notes("many")
    for offset in range(20_000):
        notes.done(offset)
    assert set(range(8_000)) < batch_progress.read_notes(os.getpid(), "many").done < set(range(20_000))


@pytest.mark.parametrize("where", ["", "/nowhere/at/all"])
def test_without_a_folder_nothing_is_noted_and_nothing_fails(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(batch_progress.FOLDER, where)
    batch_progress.begin_notes("one").done(5)
    assert batch_progress.read_notes(os.getpid(), "one").done == set()


def test_that_a_hard_limit_ended_the_process_is_noted_beside_the_running_delivery() -> None:
    made = Delivery(Message("orders", 0, 7), "charge")
    state = BatchState(Batch("charge", "orders", 0, (made,)), batch_progress.begin_notes("one"))
    state.note_start(made)
    state.note_overrun()
    assert batch_progress.read_notes(os.getpid(), "one") == TaskNotes(running=7, overran=True)
    state.note_only_running(None)
    state.note_overrun()
    assert batch_progress.read_notes(os.getpid(), "one") == TaskNotes(overran=True)
    batch_progress.begin_notes("two")
    assert batch_progress.read_notes(os.getpid(), "two") == TaskNotes()


def test_a_worker_that_runs_tasks_itself_keeps_no_notes_that_its_threads_would_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_progress, "_own_folder", None)
    batch_progress.make_notes_folder()
    try:
        monkeypatch.setenv(batch_progress.FOLDER, folder := os.environ[batch_progress.FOLDER])
        batch_progress.begin_notes("of a thread").done(3)
        assert not any(Path(folder).iterdir())
    finally:
        batch_progress.remove_notes_folder()
