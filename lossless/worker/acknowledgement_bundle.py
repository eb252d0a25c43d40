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


class BundledResult(NamedTuple):
    """The text of a task's result with the step: what travels from the process to the worker's main process."""

    text: str
    step: BundledStep


class AcknowledgementBundle:
    """The bundle of one run of a task.

    Attributes:
        step: what is done together with the acknowledgement; `None`: nothing.
        fallback: called if the task returns and Celery fails it all the same.
    """

    __slots__ = ("fallback", "step")

    def __init__(self) -> None:
        self.step: BundledStep | None = None
        self.fallback: Callable[[], object] | None = None

    def undo(self) -> None:
        """Call the fallback: the task had ended, and then the code around it failed."""
        if self.fallback is not None:
            try:
                self.fallback()
            except Exception as error:
                logger.error("the note that a task is done could not be written: %r; the task may run again", error)


#: The bundle of the task that runs in this process, which runs one at a time; `None` in other pools.
_running: AcknowledgementBundle | None = None


def can_bundle() -> bool:
    """Return whether the running task may bundle a step: it runs in a pool's process."""
    return _running is not None


def bundle_step(step: BundledStep, fallback: Callable[[], object]) -> bool:
    """Have a step done together with the acknowledgement of the task that runs now, if it succeeds.

    Parameters:
        fallback: called if the task returns and Celery fails it all the same.

    Returns:
        whether the step is bundled; if not, nothing is done, and `fallback` is not called.
    """
    if _running is None:
        return False
    _running.step, _running.fallback = step, fallback
    return True


def run_traced(trace: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run one of Celery's traces in a pool's process, and add the bundled step to its result."""
    global _running
    bundle = _running = AcknowledgementBundle()
    try:
        failed, result, seconds = trace(*args, **options)
    except BaseException:
        bundle.undo()
        raise
    finally:
        _running = None
    if bundle.step is None:
        return failed, result, seconds
    if failed:
        bundle.undo()
        return failed, result, seconds
    return failed, BundledResult(str(result), bundle.step), seconds


def unpack_bundle(on_success: Callable[..., Any]) -> Callable[..., Any]:
    """Return Celery's own `on_success`, which first takes the bundled step out of the result."""

    def unpacked(self: Any, result: Any, **options: Any) -> Any:
        failed, text, seconds = result
        if isinstance(text, BundledResult):
            text, self._bundled_step = text  # events and logs get plain text
        return on_success(self, (failed, text, seconds), **options)

    return unpacked
