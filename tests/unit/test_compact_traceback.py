"""What is kept and sent of a failure's traceback."""

import pickle
import traceback
import tracemalloc
from typing import Any

import pytest
from billiard import einfo as _einfo

from lossless.worker.compact_traceback import keep_tracebacks_compact

einfo: Any = _einfo
#: A function of many instructions, of which one calls the next: as a handler has them above its own.
LONG = "def call(left):\n" + "    left = left + 1 - 1\n" * 200 + "    return call(left - 1) if left > 1 else 1 // 0\n"


@pytest.fixture(autouse=True)
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(einfo.Traceback.Frame, "Code", einfo._Code)
    keep_tracebacks_compact()


def fail(depth: int) -> Any:
    """Return the report of a failure so many calls deep."""
    names: dict[str, Any] = {}
    exec(compile(LONG, "handlers.py", "exec"), names)
    try:
        names["call"](depth)
    except ZeroDivisionError:
        return einfo.ExceptionInfo()


def test_a_failure_keeps_no_place_of_each_instruction() -> None:
    """billiard's copy of a traceback had a tuple for each instruction: a process grew to twice its size, and stayed."""
    fail(1)
    tracemalloc.start()
    try:
        report = fail(40)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.type is ZeroDivisionError
    assert (kept, peak) < (300_000, 600_000)
    assert len(pickle.dumps(report)) < 40_000


def test_a_traceback_is_printed_as_ever_and_in_another_process_with_the_same_lines() -> None:
    report = fail(3)
    assert "".join(traceback.format_tb(report.tb)) in report.traceback
    arrived = pickle.loads(pickle.dumps(report))
    assert [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(arrived.tb)] == [
        (frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(report.tb)
    ]
    assert arrived.traceback == report.traceback
    assert pickle.loads(pickle.dumps(arrived)).traceback == report.traceback
