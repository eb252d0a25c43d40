"""The background cache: a page shows the last answer of slow servers, while a thread asks them again."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from lossless.background_thread import start_thread

Kept = TypeVar("Kept")

logger = logging.getLogger("bridge")

#: The pause after a question is at least so many times as long as it took.
REST: Final = 2.0
#: Seconds without a reader after which nothing is asked any more.
IDLE_AFTER: Final = 10.0
#: Seconds for which an answer is current, counted from its question; a reader of an older one waits for the next.
FRESH_FOR: Final = 10.0


@dataclass
class BackgroundCache(Generic[Kept]):
    """The last answer to one question, asked by one thread, which ends when nobody has read for a while.

    Parameters:
        subject: what is asked for, "the status of the group".
        ask: may take as long as a server is unavailable.
        every: seconds from one question to the next.
        within: seconds that readers wait for a current answer, from the beginning of its question.
    """

    subject: str
    ask: Callable[[], Kept]
    every: float
    within: float
    #: When the question began that readers wait for: who comes late in it waits for less.
    _waited_since: float = field(default=float("-inf"), init=False)
    _kept: Kept | None = field(default=None, init=False)
    _asked_at: float = field(default=float("-inf"), init=False)
    _forgotten: int = field(default=0, init=False)
    _read_at: float = field(default=0.0, init=False)
    _runs: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def read(self, within: float | None = None) -> Kept | None:
        """Return the last answer; `None`: there is none yet, or the last question failed (the log has it).

        Parameters:
            within: another time to wait for a current answer.
        """
        with self._changed:
            self._read_at = time.monotonic()
            if not self._runs:
                self._runs, self._waited_since = True, self._read_at
                start_thread(f"asks for {self.subject}", self._run)
            passed = self._read_at - self._waited_since
            self._changed.wait_for(self._is_current, max(0.0, (self.within if within is None else within) - passed))
            return self._kept

    def forget(self) -> None:
        """Drop the answer, after somebody has changed something: the next reader waits for a later question."""
        with self._changed:
            self._kept, self._waited_since = None, time.monotonic()
            self._forgotten += 1

    def _is_current(self) -> bool:
        return self._kept is not None and time.monotonic() - self._asked_at < FRESH_FOR

    def _run(self) -> None:
        while self._is_read():
            asked_at, forgotten = time.monotonic(), self._forgotten
            self._waited_since = asked_at
            try:
                answer: Kept | None = self.ask()
            except Exception:
                logger.exception("the console cannot read %s.", self.subject)
                answer = None
            with self._changed:
                if self._forgotten == forgotten:
                    self._kept, self._asked_at = answer, asked_at
                self._changed.notify_all()
            took = time.monotonic() - asked_at
            time.sleep(max(self.every - took, REST * took))

    def _is_read(self) -> bool:
        with self._changed:
            self._runs = time.monotonic() - self._read_at < IDLE_AFTER
            return self._runs
