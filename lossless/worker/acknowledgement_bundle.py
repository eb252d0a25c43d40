"""What a task has done in one step with the acknowledgement of its message.

A task that would write down in the broker's Redis that it is done, before it returns, makes a trip for it, and a crash
between that and the acknowledgement leaves it done and in its queue. Said here instead, it goes with the task's end to
the worker's main process, which has the transport do both in one step (lossless/transport/script_hook.py). So it is
not done
when a process or worker dies between the task's last line and that step: the message comes back then, and runs again.

Only the pool of processes carries it; in others, and where the transport has no such step, `done_along` says so.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from celery.app.trace import fast_trace_task, trace_task_ret

logger = logging.getLogger(__name__)

#: What Celery has a pool run for a task. Their results are (whether it failed, text or failure, seconds).
TRACES: Final[tuple[Any, ...]] = (fast_trace_task, trace_task_ret)


class BundledStep(NamedTuple):
    """Keys and arguments of the transport's step."""

    keys: Sequence[str]
    args: Sequence[str | int | bytes]


class BundledText(str):
    """What a task returned, as Celery's trace tells it, and what is to be done along with the acknowledgement."""

    along: BundledStep

    def __new__(cls, text: str, along: BundledStep) -> "BundledText":
        made = super().__new__(cls, text)
        made.along = along
        return made

    def __reduce__(self) -> tuple[type["BundledText"], tuple[str, BundledStep]]:
        return BundledText, (str(self), self.along)


class _Run:
    """One run of a task in this process."""

    along: BundledStep | None = None
    otherwise: Callable[[], object] | None = None


_run: _Run | None = None


def is_heard() -> bool:
    """Whether the task that runs now runs in a pool's process, whose main process hears what it says."""
    return _run is not None


def bundle_step(along: BundledStep, otherwise: Callable[[], object]) -> bool:
    """Have something done in one step with the acknowledgement of the task that runs now, if it succeeds.

    Parameters:
        otherwise: called where the task returns, and Celery has it fail all the same.

    Returns:
        whether the main process will hear of it; if not, nothing is done, and `otherwise` is not called.
    """
    if _run is None:
        return False
    _run.along, _run.otherwise = along, otherwise
    return True


def run_traced(trace: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run one of Celery's traces in a pool's process, and add to its result what is to be done along."""
    global _run
    run = _run = _Run()
    try:
        failed, result, seconds = trace(*args, **options)
    except BaseException:
        _undo_bundle(run)
        raise
    finally:
        _run = None
    if run.along is None:
        return failed, result, seconds
    if failed:
        _undo_bundle(run)
        return failed, result, seconds
    return failed, BundledText(str(result), run.along), seconds


def hear_bundle(on_success: Callable[..., Any]) -> Callable[..., Any]:
    """Celery's own `on_success`, which hears what is to be done along with the acknowledgement."""

    def heard(self: Any, result: Any, **options: Any) -> Any:
        failed, told, seconds = result
        if isinstance(told, BundledText):
            self._along, told = told.along, str(told)  # events and logs get plain text
        return on_success(self, (failed, told, seconds), **options)

    return heard


def _undo_bundle(run: _Run) -> None:
    """The task had ended, and then something around it failed: the failure is told as ever."""
    if run.otherwise is not None:
        try:
            run.otherwise()
        except Exception as error:
            logger.error("What a task had done could not be written down: %r", error)
