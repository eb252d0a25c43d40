"""The handler of simple.py in a recorder that kills itself after a step of recording: TEST_KILL_AFTER.

By kill -9, or by the signal TEST_KILL_BY: SIGSTOP freezes it there.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from tests.handlers.simple import work

__all__ = ["work"]

#: What it dies after; the third time that it is done, so that some batches were whole before.
AFTER = os.environ.get("TEST_KILL_AFTER", "")
TIMES = 3
BY = signal.Signals[os.environ.get("TEST_KILL_BY", "SIGKILL")]


def _kill() -> None:
    print("kills itself", file=sys.stderr, flush=True)
    os.kill(os.getpid(), BY)
    # Another thread may be given the signal: this one must not go on until it is stopped with it.
    time.sleep(5)


def _dies_after(step: str, act: Callable[..., Any]) -> Callable[..., Any]:
    done = 0

    def acted(*args: Any, **named: Any) -> Any:
        nonlocal done
        found = act(*args, **named)
        done += 1
        if step == AFTER and done == TIMES:
            _kill()
        return found

    return acted


if AFTER:
    from bridge.deadletters.db import kind_rows, letter_writer, position_rows
    from bridge.deadletters.db.database import Database
    from bridge.deadletters.recorder.dead_letter_consumer import DeadLetterConsumer
    from bridge.deadletters.recorder.start_position import StartFinder

    TIMES = 1 if AFTER in ("begun",) else TIMES
    position_rows.move_positions = _dies_after("position", position_rows.move_positions)
    kind_rows.add_to_tallies = _dies_after("tallies", kind_rows.add_to_tallies)
    kind_rows.widen_group_times = _dies_after("seen", kind_rows.widen_group_times)
    letter_writer.LetterWriter.record = _dies_after("letters", letter_writer.LetterWriter.record)  # type: ignore[method-assign]
    StartFinder.find_starts = _dies_after("begun", StartFinder.find_starts)  # type: ignore[method-assign]
    DeadLetterConsumer.put_back = _dies_after("put back", DeadLetterConsumer.put_back)  # type: ignore[method-assign]
    _take_in, _written, _writing = DeadLetterConsumer._take_in, DeadLetterConsumer.written, Database.writing
    DeadLetterConsumer._take_in = _dies_after("read", _take_in)  # type: ignore[method-assign]
    DeadLetterConsumer.written = _dies_after("told kafka", _written)  # type: ignore[method-assign]

    @contextmanager
    def _committed(self: Database) -> Any:
        with _writing(self) as connection:
            yield connection
        _after_commit()

    _after_commit = _dies_after("committed", lambda: None)
    Database.writing = _committed  # type: ignore[method-assign]
