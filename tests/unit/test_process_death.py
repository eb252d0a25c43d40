"""What took a process, in words, and when."""

from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.process_death import (
    KEPT,
    LOSS_HISTORY,
    MemoryKills,
    add_to_history,
    describe_cause,
    describe_death,
    read_loss_history,
)

KILLED = WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 12.")
CAUSES: list[tuple[BaseException, bool, str]] = [
    (KILLED, False, "signal 9 (SIGKILL)"),
    (KILLED, True, "signal 9 (SIGKILL), out of memory: the kernel killed it"),
    (WorkerLostError("Worker exited prematurely: signal 11 (SIGSEGV) Job: 0."), True, "signal 11 (SIGSEGV)"),
    (WorkerLostError("Worker exited prematurely: exitcode 7 Job: 3."), False, "exitcode 7"),
    (WorkerLostError("Worker exited prematurely: KeyboardInterrupt."), False, "KeyboardInterrupt"),
    (WorkerLostError("gone"), False, "WorkerLostError gone"),
    (TimeLimitExceeded(1), False, "hard time limit of 1 s"),
    (TimeLimitExceeded(0.25), False, "hard time limit of 0.25 s"),
    (TimeLimitExceeded(), False, "hard time limit"),
    (MemoryError(), False, "out of memory"),
    (MemoryError("no room"), False, "out of memory: no room"),
    (GeneratorExit(), False, "GeneratorExit"),
]


@pytest.mark.parametrize(("error", "out_of_memory", "cause"), CAUSES)
def test_a_lost_process_has_a_cause_in_words(error: BaseException, out_of_memory: bool, cause: str) -> None:
    assert describe_cause(error, out_of_memory) == cause


def test_the_history_says_when_and_keeps_the_last() -> None:
    headers: dict[str, Any] = {}
    for second in range(KEPT + 2):
        headers[LOSS_HISTORY] = add_to_history(headers, f"cause {second}", 1_700_000_000 + second)
    assert len(headers[LOSS_HISTORY]) == KEPT
    assert headers[LOSS_HISTORY][0] == "2023-11-14T22:13:22Z cause 2"
    assert headers[LOSS_HISTORY][-1] == "2023-11-14T22:13:31Z cause 11"


@given(st.none() | st.text() | st.integers() | st.lists(st.integers() | st.text()))
def test_what_is_no_history_counts_for_nothing(value: Any) -> None:
    assert all(isinstance(each, str) for each in read_loss_history({LOSS_HISTORY: value}))
    assert len(add_to_history({LOSS_HISTORY: value}, "x", 0)) >= 1
    assert read_loss_history(None) == []


def test_what_a_message_is_dead_of_says_how_often() -> None:
    assert describe_death("exitcode 7", 1) == "exitcode 7"
    assert describe_death("exitcode 7", 3) == "exitcode 7; its process was lost 3 times"


def test_the_kernels_kills_for_want_of_memory_are_noticed_once_each(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    kills = MemoryKills(events)
    assert not kills.more()
    events.write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert kills.more()
    assert not kills.more()


def test_where_the_kernel_does_not_count_nobody_is_said_to_have_been_killed(tmp_path: Path) -> None:
    assert not MemoryKills(tmp_path / "nowhere").more()
