"""The recorder's duties beside recording, each on its own timetable and in its own thread, and the thread that keeps a
slow database from blocking the poll loop.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from bridge.deadletters.alarms import alarm_watch, webhook_sender
from bridge.deadletters.recorder.retention import apply_retention
from bridge.deadletters.replay import fixed_group_replay
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService

T = TypeVar("T")


class SideTask(Generic[T]):
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


logger = logging.getLogger(__name__)

#: Seconds between two times that it is said why a duty cannot be done.
SAY_EVERY: Final = 60.0
#: Seconds that duties have to end when the recorder is told to.
END_WITHIN: Final = 5.0


class Duty(NamedTuple):
    """Something that is done again and again.

    Attributes:
        what: for the log: "following replays".
        every: seconds between two times.
        do: does it once, with the desk; what takes long looks now and then whether the event is set, and returns then.
            Recorders of one group do it beside each other: it must not matter which of them, or that several do.
    """

    what: str
    every: float
    do: "Callable[[DeadLetterService, threading.Event], object]"


#: What the recorder does besides recording.
DUTIES: Final[Sequence[Duty]] = (
    Duty("cleaning up", 3_600, apply_retention),
    Duty("following what was sent back", 1.0, lambda desk, stopping: desk.plans.follow(stopping)),
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
    Duty("noticing what grows", 30.0, lambda desk, _: alarm_watch.notice_groups(desk.database)),
    Duty(
        "sending webhooks",
        1.0,
        lambda desk, stopping: webhook_sender.send_due_events(desk.settings, desk.database, stopping),
    ),
)


class Duties:
    """Each in a thread of its own: none waits for another, and none holds up recording."""

    def __init__(self, desk: "DeadLetterService", duties: Sequence[Duty] = DUTIES) -> None:
        self._desk = desk
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._turn, args=(duty,), name=duty.what, daemon=True) for duty in duties
        ]

    def start(self) -> None:
        """Begin; the database has its tables."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Have them end, and wait for that some seconds; what is not over then ends with the process."""
        self._stopping.set()
        until = time.monotonic() + END_WITHIN
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _turn(self, duty: Duty) -> None:
        said_at = -SAY_EVERY
        while not self._stopping.is_set():
            try:
                duty.do(self._desk, self._stopping)
            except Exception as error:
                if time.monotonic() - said_at >= SAY_EVERY:
                    said_at = time.monotonic()
                    # What is not ours, and so not expected, says where it comes from.
                    unexpected = not isinstance(error, BridgeError)
                    logger.error("%s: %s It is tried again.", duty.what, error, exc_info=unexpected)
            self._stopping.wait(duty.every)
