"""One thing at a time is done beside the loop, which must go on polling Kafka while a database hangs."""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Does one thing at a time, in a thread that ends with the process, whatever it waits for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: Future[T] | None = None
        self._begun = 0.0

    @property
    def lasts(self) -> float:
        """For how many seconds something has been under way; 0: nothing is."""
        return 0.0 if self._under_way is None else time.monotonic() - self._begun

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, and no answer waits to be taken."""
        return self._under_way is None

    def begin(self, work: Callable[[], T]) -> None:
        """Do this; it must be idle."""
        future: Future[T] = Future()
        self._under_way, self._begun = future, time.monotonic()
        Thread(target=_do, args=(work, future), name=self._name, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Until it is done, or so long."""
        if self._under_way is not None:
            wait([self._under_way], seconds)

    def taken(self) -> "Future[T] | None":
        """What it came to, once it is done; it is idle then."""
        if self._under_way is None or not self._under_way.done():
            return None
        done, self._under_way = self._under_way, None
        return done


def _do(work: Callable[[], Any], future: "Future[Any]") -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
