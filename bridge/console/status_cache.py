"""The status of the group as pages show it, and the answers that its readers share."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from bridge.console.background_cache import FRESH_FOR, BackgroundCache
from bridge.deadletters.alarms.dead_letter_problems import find_dead_letter_problems
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import NothingAnswers
from bridge.inspection.status import read_status
from bridge.inspection.status_report import add_problems, make_problem_data, make_silent_problem
from bridge.kafka.dead_letter_reader import RecentDeadLetters
from bridge.settings.masked_fields import read_mask_rules

Kept = TypeVar("Kept")

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
