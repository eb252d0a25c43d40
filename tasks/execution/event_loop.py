"""`async def` handlers: each process has one event loop, on which they are awaited."""

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from tasks.errors import DeadLetter

#: billiard's signal for a soft time limit; its handler raises wherever the process is.
_SOFT_LIMIT: Final = getattr(signal, "SIGUSR1", None)

_mine = threading.local()


def finish_handler(returned: Any) -> Any:
    """What a handler's function gave back, once it has run to its end: what can be awaited is awaited.

    Raises:
        DeadLetter: it gave back a generator, of which nothing has run and nothing would.
    """
    if returned is None:
        return None
    if inspect.isawaitable(returned):
        return _run(returned)
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise DeadLetter("the handler gave back a generator, of which nothing runs: it must not yield")
    return returned


def close_loop() -> None:
    """End this thread's event loop, and what still runs on it."""
    loop = getattr(_mine, "loop", None)
    if loop is None or _mine.pid != os.getpid() or loop.is_closed():
        return
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    with suppress(Exception):
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _loop() -> asyncio.AbstractEventLoop:
    """This process's loop (under `-P threads`: this thread's), which lives on between messages, as clients need it."""
    # A loop must not be shared with the process that this one was forked from.
    if getattr(_mine, "pid", None) != os.getpid() or _mine.loop.is_closed():
        _mine.loop, _mine.pid = asyncio.new_event_loop(), os.getpid()
        asyncio.set_event_loop(_mine.loop)
    loop: asyncio.AbstractEventLoop = _mine.loop
    return loop


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run(awaitable: Awaitable[Any]) -> Any:
    loop = _loop()
    task = loop.create_task(_awaited(awaitable))
    with _struck(loop, task) as struck:
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if struck:
                raise struck[0] from None
            raise
        except BaseException:
            # The end of the process: what the handler wants to close is closed.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    loop.run_until_complete(task)
            raise


@contextmanager
def _struck(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> Iterator[list[BaseException]]:
    """Have a soft time limit end the handler, and nothing else of the loop.

    Raised in the handler's own code it is the handler's, as in one that is not async. Anywhere else it would break the
    loop or strike another task of it: there the handler is cancelled, and what the signal raised is kept in the list.
    """
    found: list[BaseException] = []
    if _SOFT_LIMIT is None or threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = signal.getsignal(_SOFT_LIMIT)
    if not callable(before):
        yield found
        return

    def strike(number: int, frame: Any) -> None:
        if asyncio.current_task(loop) is task:
            before(number, frame)
            return
        try:
            before(number, frame)
        except BaseException as error:
            found.append(error)
            loop.call_soon_threadsafe(task.cancel)

    signal.signal(_SOFT_LIMIT, strike)
    try:
        yield found
    finally:
        signal.signal(_SOFT_LIMIT, before)
