"""The recorder's duties beside recording, each on its own timetable and thread; the thread that keeps a slow database
from blocking the poll loop; and the outage of what a loop asks.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from bridge.deadletters.alarms import alarm_watch, webhook_sender
from bridge.deadletters.recorder.retention import apply_retention
from bridge.deadletters.replay import fixed_group_replay
from bridge.errors import BridgeError
from lossless.background_thread import BackgroundThread, start_call
from lossless.backoff import Backoff, RetryTimer

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SideTask(Generic[T]):
    """A daemon thread that does one thing at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: Future[T] | None = None
        self._begun = 0.0

    @property
    def lasts(self) -> float:
        """Return the seconds for which work has been in flight; 0 if none is."""
        return 0.0 if self._under_way is None else time.monotonic() - self._begun

    @property
    def idle(self) -> bool:
        """Return whether no work is in flight and no result waits."""
        return self._under_way is None

    def begin(self, work: Callable[[], T]) -> None:
        """Begin this work; the task must be idle."""
        self._begun, self._under_way = time.monotonic(), start_call(self._name, work)

    def wait(self, seconds: float) -> None:
        """Wait until the work is done, or for this time."""
        if self._under_way is not None:
            wait([self._under_way], seconds)

    def taken(self) -> "Future[T] | None":
        """Return the result once the work is done; then the task is idle."""
        if self._under_way is None or not self._under_way.done():
            return None
        done, self._under_way = self._under_way, None
        return done


#: Seconds between two tries: the first pause, and the longest.
RETRY_AFTER: Final = Backoff(first=0.2, most=10.0)
#: Seconds between two log lines about an outage, or about a duty that fails.
SAY_EVERY: Final = 60.0


class Outage:
    """The outage of one dependency.

    Parameters:
        waits: the effect, for the log: "nothing is recorded".
        well: the log line for its end.

    Attributes:
        why: a sentence; `None` without an outage.
    """

    def __init__(self, waits: str, well: str) -> None:
        self._waits, self._well = waits, well
        self.why: str | None = None
        self._timer = RetryTimer(RETRY_AFTER)
        self._since = self._said_at = 0.0

    def met(self, error: Exception) -> None:
        """Note that a try has failed."""
        now = time.monotonic()
        self._timer.note_failure(now)
        if self.why is None:
            self._since = now
        if self.why is None or now - self._said_at >= SAY_EVERY:
            self._said_at = now
            logger.error("%s, for %.0f s now; it is tried again: %s", self._waits, now - self._since, error)
        self.why = str(error)

    def over(self) -> None:
        """Note that the server responds again."""
        if self.why is not None:
            logger.info("%s, after %.0f s.", self._well, time.monotonic() - self._since)
        self.why = None
        self._timer.reset()

    @property
    def lasts(self) -> float:
        """Return the seconds since the outage began; 0 without one."""
        return 0.0 if self.why is None else time.monotonic() - self._since

    @property
    def may_try(self) -> bool:
        """Return whether the next try is due."""
        return self._timer.is_due(time.monotonic())


#: Seconds that duties have to end at a shutdown.
END_WITHIN: Final = 5.0


class Duty(NamedTuple):
    """A periodic task of the recorder.

    Attributes:
        what: its name for the log.
        every: seconds between two runs.
        do: does it once; a long duty checks the event now and then, and returns if it is set.
            Recorders of a group do it concurrently: it must not matter which of them does it, or how many.
    """

    what: str
    every: float
    do: "Callable[[DeadLetterService, threading.Event], object]"


#: The duties of every recorder.
DUTIES: Final[Sequence[Duty]] = (
    Duty("cleaning up", 3_600, apply_retention),
    Duty("following what was sent back", 1.0, lambda desk, stopping: desk.plans.follow(stopping)),
    Duty(
        "comparing ended letters with the ledger", 1.0, lambda desk, stopping: desk.plans.compare_with_ledger(stopping)
    ),
    Duty("going on with plans", 1.0, lambda desk, stopping: desk.plans.go_on(stopping)),
    Duty(
        "groups that are fixed",
        5.0,
        lambda desk, _: fixed_group_replay.check_fixed_groups(
            desk.database, lambda: fixed_group_replay.read_living_workers(desk.settings)
        ),
    ),
    Duty(
        "noticing halts and breakers",
        5.0,
        lambda desk, _: alarm_watch.notice_topics(desk.settings, desk.routes, desk.database),
    ),
    Duty("noticing new groups", 5.0, lambda desk, _: alarm_watch.notice_new(desk.database)),
    Duty("noticing plans that await somebody", 5.0, lambda desk, _: alarm_watch.notice_awaiting_plans(desk.database)),
    Duty("noticing what grows", 30.0, lambda desk, _: alarm_watch.notice_groups(desk.database)),
    Duty("encrypting webhooks", 3_600, lambda desk, _: desk.webhooks.encrypt_all()),
    Duty(
        "sending webhooks",
        1.0,
        lambda desk, stopping: webhook_sender.send_due_events(desk.settings, desk.database, stopping),
    ),
)


class Duties:
    """The duties, each in a thread of its own, so that none delays another or the recording."""

    def __init__(self, desk: "DeadLetterService", duties: Sequence[Duty] = DUTIES) -> None:
        self._desk = desk
        self._stopping = threading.Event()
        self._threads = [BackgroundThread(duty.what, partial(self._turn, duty), self._stopping) for duty in duties]

    def start(self) -> None:
        """Start all duties; the database must have its tables."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the duties, and wait some seconds for them; the rest ends with the process."""
        until = time.monotonic() + END_WITHIN
        for thread in self._threads:
            thread.stop(max(0.0, until - time.monotonic()))

    def _turn(self, duty: Duty) -> None:
        said_at = -SAY_EVERY
        while not self._stopping.is_set():
            try:
                duty.do(self._desk, self._stopping)
            except Exception as error:
                if time.monotonic() - said_at >= SAY_EVERY:
                    said_at = time.monotonic()
                    # An unexpected error is logged with its traceback.
                    unexpected = not isinstance(error, BridgeError)
                    logger.error("%s: %s It is tried again.", duty.what, error, exc_info=unexpected)
            self._stopping.wait(duty.every)
