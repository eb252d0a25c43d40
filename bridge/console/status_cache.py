"""Background caches of what slow servers answer, and the status of the group that pages read from one."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from bridge.deadletters.alarms.dead_letter_problems import find_dead_letter_problems
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import NothingAnswers
from bridge.inspection.status import read_status
from bridge.inspection.status_report import add_problems, make_problem_data, make_silent_problem
from bridge.kafka.dead_letter_reader import RecentDeadLetters
from bridge.settings.masked_fields import read_mask_rules
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


#: Seconds for which a shared answer is recent: fewer than between two snapshots of a page.
GOOD_FOR: Final = 1.5


@dataclass
class SharedAnswer(Generic[Kept]):
    """The last answer that any thread got, for others that ask soon."""

    clock: Callable[[], float] = time.monotonic
    _found: Kept | None = field(default=None, init=False, repr=False)
    _until: float = field(default=0.0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def find_recent(self, ask: Callable[[], Kept], holds: Callable[[Kept], bool]) -> Kept:
        """Return the last answer if it is recent and still holds; else ask now.

        Parameters:
            holds: whether an answer is not known to be outdated.
        """
        with self._lock:
            if self._found is None or self.clock() >= self._until or not holds(self._found):
                self._found = ask()
                self._until = self.clock() + GOOD_FOR
            return self._found


#: Seconds between two reads of the status: each costs 90 ms of a core, half of that in clients of Kafka.
STATUS_PERIOD: Final = 3.0
#: Seconds that a page waits for the current status.
STATUS_WITHIN: Final = 3.0

#: The data that `bridge status --json` prints.
StatusData = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of the group at one time.

    Attributes:
        at: the time, ms since the epoch, as all times here.
        status: the data of `bridge status --json`, without the parts of servers that do not respond.
        heard: by the subject of a problem, since when this console knows it.
        read: when reading began, by the monotonic clock.
    """

    at: int
    status: StatusData
    heard: Mapping[str, int] = field(default_factory=dict)
    read: float = field(default_factory=time.monotonic)

    @property
    def is_old(self) -> bool:
        """Return whether the status is too old to be shown as the current one."""
        return time.monotonic() - self.read >= FRESH_FOR

    @property
    def silent(self) -> dict[str, int]:
        """Return a sentence for each server that does not respond, with the time since when."""
        return {sentence: self.since(sentence) for sentence in self.status["unanswered"]}

    def since(self, sentence: str) -> int:
        """Return since when this console knows a problem; a new one is known since this status."""
        return self.heard.get(get_problem_subject(sentence), self.at)


def read_group_status(desk: DeadLetterService, recent: RecentDeadLetters) -> StatusData:
    """Return the data of `bridge status --json`, or problems alone if no server responds."""
    try:
        # All users share one status, whatever they may see.
        quotes = not read_mask_rules(desk.settings.environment.DEADLETTERS_MASK)
        found = read_status(desk.app, desk.settings, desk.routes, quotes=quotes, recent=recent)
    except NothingAnswers as error:
        said = str(error).splitlines()
        found = {**make_problem_data([*map(make_silent_problem, said)]), "unanswered": said}
    more = find_dead_letter_problems(
        desk.settings, desk.routes, database=desk.database, kafka_answers=found.get("topics") is not None
    )
    return add_problems(found, more)


@dataclass
class GroupStatusReader:
    """The reader of the group's status; it remembers since when the console has heard of each problem.

    Parameters:
        clock: Unix time.
    """

    ask: Callable[[], StatusData]
    clock: Callable[[], float] = time.time
    _heard: Mapping[str, int] = field(default_factory=dict, init=False)

    def read_status(self) -> GroupStatus:
        """Return the status of the group now."""
        at, read = int(self.clock() * 1000), time.monotonic()
        found = self.ask()
        self._heard = {name: self._heard.get(name, at) for name in map(get_problem_subject, found["problems"])}
        return GroupStatus(at, found, self._heard, read)


def make_status_cache(ask: Callable[[], StatusData]) -> BackgroundCache[GroupStatus]:
    """Return a cache of the group's status."""
    return BackgroundCache("the status of the group", GroupStatusReader(ask).read_status, STATUS_PERIOD, STATUS_WITHIN)


def get_problem_subject(sentence: str) -> str:
    """Return the subject of a problem, without the words of an error: those may change between two reads."""
    return sentence.partition(":")[0]
