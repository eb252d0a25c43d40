"""Background caches: the status of the group, the recorder heartbeat, and the live parts of pages."""

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

Heard = TypeVar("Heard")

#: Seconds between two questions; and for which a page waits for the answer.
ASK_PERIOD: Final = 5.0
ANSWER_WITHIN: Final = 0.3


@dataclass
class BackgroundAnswer(Generic[Heard]):
    """Asks from a thread of its own, one at a time, and only while pages ask.

    Parameters:
        ask: may take as long as a server is silent; raises nothing.
        unknown: what is said before the first answer.
    """

    ask: Callable[[], Heard]
    unknown: Heard
    _heard: Heard = field(init=False, repr=False)
    _asked: float = field(default=float("-inf"), init=False)
    _runs: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def __post_init__(self) -> None:
        self._heard = self.unknown

    def latest(self) -> Heard:
        """The last answer; `unknown` where there was none yet. Who has it asked again waits a moment for it."""
        with self._changed:
            if not self._runs and time.monotonic() - self._asked >= ASK_PERIOD:
                self._runs, self._asked = True, time.monotonic()
                threading.Thread(target=self._run, name="hearing", daemon=True).start()
                self._changed.wait_for(lambda: not self._runs, ANSWER_WITHIN)
            return self._heard

    def _run(self) -> None:
        heard = self.unknown
        try:
            heard = self.ask()
        finally:
            with self._changed:
                self._heard, self._runs, self._asked = heard, False, time.monotonic()
                self._changed.notify_all()


Kept = TypeVar("Kept")

#: Seconds for which it is good: less than lie between two snapshots of a page.
GOOD_FOR: Final = 1.5


@dataclass
class SharedAnswer(Generic[Kept]):
    """The last that was found, by any thread."""

    clock: Callable[[], float] = time.monotonic
    _found: Kept | None = field(default=None, init=False, repr=False)
    _until: float = field(default=0.0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def found(self, ask: Callable[[], Kept], holds: Callable[[Kept], bool]) -> Kept:
        """What was found last, where that is not long ago and holds still; else it is asked for now.

        Parameters:
            holds: whether it is not known to be of the past.
        """
        with self._lock:
            if self._found is None or self.clock() >= self._until or not holds(self._found):
                self._found = ask()
                self._until = self.clock() + GOOD_FOR
            return self._found


logger = logging.getLogger("bridge")

#: Seconds between two looks, each of which costs 90 ms of a core, half of that in clients of Kafka; and how many looks
#: long the pause is at least.
STATUS_PERIOD: Final = 3.0
STATUS_REST: Final = 2.0
#: Seconds without a reader after which nothing is read any more.
IDLE_AFTER: Final = 10.0
#: Seconds up to which what was found is shown as it is; a page waits so long for a look where it is older.
FRESH_FOR: Final = 10.0
STATUS_WITHIN: Final = 3.0

#: What `bridge status --json` answers.
StatusData = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """How the group stood.

    Attributes:
        at: when, ms since the epoch, as all times here.
        status: what `bridge status --json` answers; what could not be asked is not in it.
        heard: by what a problem is about, since when this console has heard of it.
        read: when the look began, by a clock that nobody sets (time.monotonic).
    """

    at: int
    status: StatusData
    heard: Mapping[str, int] = field(default_factory=dict)
    read: float = field(default_factory=time.monotonic)

    @property
    def is_old(self) -> bool:
        """Whether it was found out so long ago that it is not shown as what is now."""
        return time.monotonic() - self.read >= FRESH_FOR

    @property
    def silent(self) -> dict[str, int]:
        """What does not answer, a sentence each, and since when."""
        return {sentence: self.since(sentence) for sentence in self.status["unanswered"]}

    def since(self, sentence: str) -> int:
        """Since when this console has heard of a problem; of another one, since now."""
        return self.heard.get(get_problem_subject(sentence), self.at)


def read_group_status(desk: DeadLetterService, recent: RecentDeadLetters) -> StatusData:
    """What `bridge status --json` answers, or what it says where nothing answers."""
    try:
        # One look is for all who look, whatever they may see.
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
class StatusCache:
    """Looks from a thread of its own, which ends where nobody has read for a while.

    Parameters:
        ask: is called by one thread at a time; may take as long as a server is silent.
        clock: Unix time.
    """

    ask: Callable[[], StatusData]
    clock: Callable[[], float] = time.time
    _found: GroupStatus | None = field(default=None, init=False)
    _heard: Mapping[str, int] = field(default_factory=dict, init=False)
    _forgotten: int = field(default=0, init=False)
    _read: float = field(default=0.0, init=False)
    _runs: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def latest(self, within: float = STATUS_WITHIN) -> GroupStatus | None:
        """The last look; `None`: the first is not over, or failed (the log has it).

        Parameters:
            within: seconds to wait for one, where the last is old.
        """
        with self._changed:
            self._read = time.monotonic()
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="looking", daemon=True).start()
            self._changed.wait_for(self._is_fresh, within)
            return self._found

    def forget(self) -> None:
        """Somebody has changed something: who reads next waits for a look that began afterwards."""
        with self._changed:
            self._found = None
            self._forgotten += 1

    def _is_fresh(self) -> bool:
        return self._found is not None and not self._found.is_old

    def _run(self) -> None:
        while self._is_read():
            began, forgotten = time.monotonic(), self._forgotten
            try:
                found = self._look()
            except Exception:
                logger.exception("the console cannot say how the group stands.")
                found = None
            with self._changed:
                if self._forgotten == forgotten:
                    self._found = found
                self._changed.notify_all()
            took = time.monotonic() - began
            time.sleep(max(STATUS_PERIOD - took, STATUS_REST * took))

    def _is_read(self) -> bool:
        with self._changed:
            self._runs = time.monotonic() - self._read < IDLE_AFTER
            return self._runs

    def _look(self) -> GroupStatus:
        at, read = int(self.clock() * 1000), time.monotonic()
        found = self.ask()
        self._heard = {name: self._heard.get(name, at) for name in map(get_problem_subject, found["problems"])}
        return GroupStatus(at, found, self._heard, read)


def get_problem_subject(sentence: str) -> str:
    """What a problem is about: an error's own words may change from look to look."""
    return sentence.partition(":")[0]
