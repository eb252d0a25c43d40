"""The event loop of a process, on which `async def` handlers are awaited."""

import asyncio
import inspect
import os
import selectors
import signal
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from tasks.errors import DeadLetter

#: billiard's signal for a soft time limit; its handler raises wherever the process is.
_SOFT_LIMIT: Final = getattr(signal, "SIGUSR1", None)

_local = threading.local()


def finish_handler(returned: Any) -> Any:
    """Return the result of a handler's function; an awaitable is awaited.

    Raises:
        DeadLetter: the function returned a generator, which would never run.
    """
    if returned is None:
        return None
    if inspect.isawaitable(returned):
        return _run(returned)
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise DeadLetter("the handler returned a generator, which never runs: it must not yield")
    return returned


def close_loop() -> None:
    """Close this thread's event loop, and cancel its tasks."""
    loop = getattr(_local, "loop", None)
    if loop is None or _local.pid != os.getpid() or loop.is_closed():
        return
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    with suppress(Exception):
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def find_loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop (under `-P threads`: this thread's), which stays open for clients between messages."""
    # A loop must not be shared with the process that this one was forked from.
    if getattr(_local, "pid", None) != os.getpid() or _local.loop.is_closed():
        _local.loop, _local.waits = _make_loop()
        _local.pid = os.getpid()
        asyncio.set_event_loop(_local.loop)
    loop: asyncio.AbstractEventLoop = _local.loop
    return loop


def read_waited() -> float | None:
    """Return the seconds for which this thread's loop has waited so far; `None` if another library's loop runs."""
    find_loop()
    waits: _MeteredSelector | None = _local.waits
    return None if waits is None else waits.waited


class _MeteredSelector(selectors.DefaultSelector):
    """A selector that counts the seconds for which its loop waits."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        since = time.monotonic()
        try:
            return super().select(timeout)
        finally:
            self.waited += time.monotonic() - since


def _make_loop() -> tuple[asyncio.AbstractEventLoop, _MeteredSelector | None]:
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        # A policy of the user's has made it.
        return loop, None
    loop.close()
    selector = _MeteredSelector()
    return asyncio.SelectorEventLoop(selector), selector


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run(awaitable: Awaitable[Any]) -> Any:
    loop = find_loop()
    task = loop.create_task(_awaited(awaitable))
    with _limit_errors(loop, task) as limit_errors:
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if limit_errors:
                raise limit_errors[0] from None
            raise
        except BaseException:
            # The process ends: the handler may clean up.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    loop.run_until_complete(task)
            raise


@contextmanager
def _limit_errors(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> Iterator[list[BaseException]]:
    """Have a soft time limit end the handler, and nothing else of the loop.

    Raised in the handler's own code it is the handler's error, as without async. Anywhere else it would break the loop
    or hit another task: there the handler is cancelled, and the signal's error is kept in the list.
    """
    errors: list[BaseException] = []
    if _SOFT_LIMIT is None or threading.current_thread() is not threading.main_thread():
        yield errors
        return
    before = signal.getsignal(_SOFT_LIMIT)
    if not callable(before):
        yield errors
        return

    def on_signal(number: int, frame: Any) -> None:
        if asyncio.current_task(loop) is task:
            before(number, frame)
            return
        try:
            before(number, frame)
        except BaseException as error:
            errors.append(error)
            loop.call_soon_threadsafe(task.cancel)

    signal.signal(_SOFT_LIMIT, on_signal)
    try:
        yield errors
    finally:
        signal.signal(_SOFT_LIMIT, before)
