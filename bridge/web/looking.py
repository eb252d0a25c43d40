"""How the group stands: read at most every third second for all consoles, and only while one looks."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.commands.problems import silent
from bridge.commands.status import status
from bridge.commands.status_data import told, with_more
from bridge.deadletters.desk import Desk
from bridge.deadletters.questions.problems import problems
from bridge.errors import NothingAnswers
from bridge.settings.masks import rules
from bridge.topics.recent import Recent

logger = logging.getLogger("bridge")

#: Seconds between two looks, each of which costs 90 ms of a core, half of that in clients of Kafka; and how many looks
#: long the pause is at least.
EVERY: Final = 3.0
REST: Final = 2.0
#: Seconds without a reader after which nothing is read any more.
KEEPS_LOOKING: Final = 10.0
#: Seconds up to which what was found is shown as it is; a page waits so long for a look where it is older.
FRESH: Final = 10.0
WITHIN: Final = 3.0

#: What `bridge status --json` answers.
Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the group stood.

    Attributes:
        at: when, ms since the epoch, as all times here.
        status: what `bridge status --json` answers; what could not be asked is not in it.
        heard: by what a problem is about, since when this console has heard of it.
        read: when the look began, by a clock that nobody sets (time.monotonic).
    """

    at: int
    status: Status
    heard: Mapping[str, int] = field(default_factory=dict)
    read: float = field(default_factory=time.monotonic)

    @property
    def is_old(self) -> bool:
        """Whether it was found out so long ago that it is not shown as what is now."""
        return time.monotonic() - self.read >= FRESH

    @property
    def silent(self) -> dict[str, int]:
        """What does not answer, a sentence each, and since when."""
        return {sentence: self.since(sentence) for sentence in self.status["unanswered"]}

    def since(self, sentence: str) -> int:
        """Since when this console has heard of a problem; of another one, since now."""
        return self.heard.get(about(sentence), self.at)


def asked(desk: Desk, recent: Recent) -> Status:
    """What `bridge status --json` answers, or what it says where nothing answers."""
    try:
        # One look is for all who look, whatever they may see.
        quotes = not rules(desk.settings.environment.DEADLETTERS_MASK)
        found = status(desk.app, desk.settings, desk.routes, quotes=quotes, recent=recent)
    except NothingAnswers as error:
        said = str(error).splitlines()
        found = {**told([*map(silent, said)]), "unanswered": said}
    return with_more(found, problems(desk.settings, desk.routes, database=desk.database))


@dataclass
class Looking:
    """Looks from a thread of its own, which ends where nobody has read for a while.

    Parameters:
        ask: is called by one thread at a time; may take as long as a server is silent.
        clock: Unix time.
    """

    ask: Callable[[], Status]
    clock: Callable[[], float] = time.time
    _found: Standing | None = field(default=None, init=False)
    _heard: Mapping[str, int] = field(default_factory=dict, init=False)
    _forgotten: int = field(default=0, init=False)
    _read: float = field(default=0.0, init=False)
    _runs: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def latest(self, within: float = WITHIN) -> Standing | None:
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
            time.sleep(max(EVERY - took, REST * took))

    def _is_read(self) -> bool:
        with self._changed:
            self._runs = time.monotonic() - self._read < KEEPS_LOOKING
            return self._runs

    def _look(self) -> Standing:
        at, read = int(self.clock() * 1000), time.monotonic()
        found = self.ask()
        self._heard = {name: self._heard.get(name, at) for name in map(about, found["problems"])}
        return Standing(at, found, self._heard, read)


def about(sentence: str) -> str:
    """What a problem is about: an error's own words may change from look to look."""
    return sentence.partition(":")[0]
