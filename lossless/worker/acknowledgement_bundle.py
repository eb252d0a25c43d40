"""The acknowledgement bundle: a step in Redis that is done together with the acknowledgement of a task's message.

A task that notes in the broker's Redis that it is done makes a round trip, and a crash between the note and the
acknowledgement leaves the task done and queued. `bundle_step` hands the note to the worker's main process instead,
which has the transport do both in one step (lossless/transport/script_hook.py). If a process or worker dies before that
step, neither is done, and the message is redelivered.

Only the process pool supports it; in other pools `bundle_step` returns False.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from celery.app.trace import fast_trace_task, trace_task_ret

logger = logging.getLogger(__name__)

#: The functions that Celery has a pool run for a task; they return (whether it failed, text or failure, seconds).
TRACES: Final[tuple[Any, ...]] = (fast_trace_task, trace_task_ret)


class BundledStep(NamedTuple):
    """The keys and arguments of a hook's step (lossless.transport.script_hook)."""

    keys: Sequence[str]
    args: Sequence[str | int | bytes]


class BundledText(str):
    """The text of a task's result, and the step that is bundled with the acknowledgement."""

    step: BundledStep

    def __new__(cls, text: str, step: BundledStep) -> "BundledText":
        made = super().__new__(cls, text)
        made.step = step
        return made

    def __reduce__(self) -> tuple[type["BundledText"], tuple[str, BundledStep]]:
        return BundledText, (str(self), self.step)


class _Run:
    """The bundle of the task that runs in this process."""

    step: BundledStep | None = None
    otherwise: Callable[[], object] | None = None


_run: _Run | None = None


def can_bundle() -> bool:
    """Return whether the running task may bundle a step: it runs in a pool's process."""
    return _run is not None


def bundle_step(step: BundledStep, otherwise: Callable[[], object]) -> bool:
    """Have a step done together with the acknowledgement of the task that runs now, if it succeeds.

    Parameters:
        otherwise: called if the task returns and Celery fails it all the same.

    Returns:
        whether the step is bundled; if not, nothing is done, and `otherwise` is not called.
    """
    if _run is None:
        return False
    _run.step, _run.otherwise = step, otherwise
    return True


def run_traced(trace: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run one of Celery's traces in a pool's process, and add the bundled step to its result."""
    global _run
    run = _run = _Run()
    try:
        failed, result, seconds = trace(*args, **options)
    except BaseException:
        _undo_bundle(run)
        raise
    finally:
        _run = None
    if run.step is None:
        return failed, result, seconds
    if failed:
        _undo_bundle(run)
        return failed, result, seconds
    return failed, BundledText(str(result), run.step), seconds


def unpack_bundle(on_success: Callable[..., Any]) -> Callable[..., Any]:
    """Return Celery's own `on_success`, which first takes the bundled step out of the result."""

    def unpacked(self: Any, result: Any, **options: Any) -> Any:
        failed, text, seconds = result
        if isinstance(text, BundledText):
            self._bundled_step, text = text.step, str(text)  # events and logs get plain text
        return on_success(self, (failed, text, seconds), **options)

    return unpacked


def _undo_bundle(run: _Run) -> None:
    """Call the fallback of a bundle: the task had ended, and then the code around it failed."""
    if run.otherwise is not None:
        try:
            run.otherwise()
        except Exception as error:
            logger.error("the note that a task is done could not be written: %r; the task may run again", error)
