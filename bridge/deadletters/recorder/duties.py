"""What the recorder does besides, each on its own timetable: a line here, and a function somewhere else."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from bridge.deadletters.upkeep import fixing
from bridge.deadletters.upkeep.cleaning import clean_up
from bridge.deadletters.webhooks import noticing, sending
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk

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
    do: "Callable[[Desk, threading.Event], object]"


#: What the recorder does besides recording.
DUTIES: Final[Sequence[Duty]] = (
    Duty("cleaning up", 3_600, clean_up),
    Duty("following what was sent back", 1.0, lambda desk, stopping: desk.plans.follow(stopping)),
    Duty("going on with plans", 1.0, lambda desk, stopping: desk.plans.go_on(stopping)),
    Duty(
        "groups that are fixed", 5.0, lambda desk, _: fixing.look(desk.database, lambda: fixing.workers(desk.settings))
    ),
    Duty(
        "noticing halts and breakers",
        5.0,
        lambda desk, _: noticing.notice_topics(desk.settings, desk.routes, desk.database),
    ),
    Duty("noticing new groups", 5.0, lambda desk, _: noticing.notice_new(desk.database)),
    Duty("noticing what grows", 30.0, lambda desk, _: noticing.notice_groups(desk.database)),
    Duty("sending webhooks", 1.0, lambda desk, stopping: sending.send(desk.settings, desk.database, stopping)),
)


class Duties:
    """Each in a thread of its own: none waits for another, and none holds up recording."""

    def __init__(self, desk: "Desk", duties: Sequence[Duty] = DUTIES) -> None:
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
