"""What a process that was lost had done can be read by another, and is never taken for another task's."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tasks import progress
from tasks.aftermath import Notes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(progress.FOLDER, str(tmp_path))
    monkeypatch.setattr(progress, "_of_process", None)
    return tmp_path


def _do_some_and_die(task_id: str, done: list[int]) -> None:
    notes = progress.begin(task_id)
    for offset in done:
        notes.running(offset)
        notes.done(offset)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_had_done_is_known_and_of_no_other_task() -> None:
    child = multiprocessing.get_context("fork").Process(target=_do_some_and_die, args=("orders-0-1..9:charge", [3, 7]))
    child.start()
    child.join()
    assert progress.notes_of(child.pid or 0, "orders-0-1..9:charge") == Notes(frozenset({3, 7}), 7)
    assert progress.notes_of(child.pid or 0, "orders-0-1..90:charge") == Notes(frozenset(), None)
    assert progress.notes_of(1, "orders-0-1..9:charge") == Notes(frozenset(), None)


def test_the_next_task_of_a_process_begins_with_nothing_done() -> None:
    first = progress.begin("first")
    first.running(5)
    first.done(5)
    first.running(0)
    assert progress.notes_of(os.getpid(), "first") == Notes(frozenset({5}), 0)
    progress.begin("second")
    assert (
        progress.notes_of(os.getpid(), "first") == progress.notes_of(os.getpid(), "second") == Notes(frozenset(), None)
    )


def test_a_process_that_ends_leaves_no_notes(folder: Path) -> None:
    progress.begin("one").done(5)
    progress.forget(os.getpid())
    assert list(folder.iterdir()) == []


def test_more_than_the_notes_hold_is_the_ledgers_to_tell() -> None:
    notes = progress.begin("many")
    for offset in range(20_000):
        notes.done(offset)
    assert set(range(8_000)) < progress.notes_of(os.getpid(), "many").done < set(range(20_000))


@pytest.mark.parametrize("where", ["", "/nowhere/at/all"])
def test_without_a_folder_nothing_is_noted_and_nothing_fails(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.FOLDER, where)
    progress.begin("one").done(5)
    assert progress.notes_of(os.getpid(), "one").done == set()
