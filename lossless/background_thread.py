"""Named daemon threads; an error in one is logged, or raised to the caller that waits for the result."""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class BackgroundThread(threading.Thread):
    """A daemon thread, which does not keep its process alive; an error that ends it is logged.

    Parameters:
        name: for logs and debuggers.
        work: what it runs. Work that lasts ends soon after `stopping` is set.
        stopping: given if several threads stop together.
    """

    def __init__(self, name: str, work: Callable[[], object], stopping: threading.Event | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.stopping = stopping or threading.Event()

    def run(self) -> None:
        """Do the work; called in the thread."""
        try:
            self._work()
        except Exception:
            logger.exception("the thread %r has ended.", self.name)
        finally:
            # As Thread does: what the work refers to may be freed although somebody keeps the thread.
            del self._work

    def stop(self, within: float) -> bool:
        """Stop the thread, wait so many seconds for its end, and return whether it has ended or never began."""
        self.stopping.set()
        if self.is_alive():
            self.join(within)
        return not self.is_alive()


def start_thread(name: str, work: Callable[[], object]) -> BackgroundThread:
    """Run work in a background thread, and return the thread."""
    thread = BackgroundThread(name, work)
    thread.start()
    return thread


def start_timer(name: str, seconds: float, act: Callable[[], object]) -> threading.Timer:
    """Do something after so many seconds, unless the timer is cancelled before."""
    timer = threading.Timer(seconds, act)
    timer.name, timer.daemon = name, True
    timer.start()
    return timer


def start_call(name: str, work: Callable[[], T]) -> "Future[T]":
    """Run work that nothing can interrupt in a background thread, and return its future result or error."""
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    BackgroundThread(name, do).start()
    return future


def copy_shared_set(shared: Iterable[T]) -> list[T]:
    """Return a copy of a set which threads change meanwhile: one that changes in a copy is copied again."""
    while True:
        with suppress(RuntimeError):
            return list(shared)
