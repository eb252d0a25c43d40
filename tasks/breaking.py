"""One run of a batch of a handler that needs something: whether it is there, and what the run says of that.

While all is well it costs a process two short trips to Redis a second, whatever it handles. What Redis does not answer
changes nothing: deliveries run, fail and are retried as without a breaker.
"""

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import BridgeError
from bridge.ledger import Ledger
from bridge.ledger.breakers import Breakers, Ended, Known, bring_in_line
from bridge.records.failure import Failure, cut
from bridge.records.message import Delivery
from lossless.transport.gates import Gates
from tasks import observing
from tasks.aftermath import LOST, cleared_of_losses, overran
from tasks.breaker import Breaker
from tasks.gates import with_gates
from tasks.limits import Limits
from tasks.policy import EXHAUSTED, EXPIRED, Again, Bury, Decision
from tasks.running import MessageTask

logger = observing.log(__name__)

#: Seconds for which what was heard holds, and after which successes are told.
HOLDS: Final = 1.0
TELL_EVERY: Final = 0.5
#: Seconds after which a delivery that may not run comes again: its gate keeps it longer.
PAUSE: Final = 1.0
#: The same for one that may not run and has never failed: apart from what has, which waits at another gate.
REFUSED: Final = 0.5
#: Seconds from a run's hard limit until it has ended.
ENDED_WITHIN: Final = 1.0
#: Characters of an error that are quoted where a breaker opens.
ERROR_SHOWN: Final = 200
#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 1.0


@dataclass
class Seen:
    """What this process knows of a dependency, and has not told yet."""

    known: Known = field(default_factory=Known)
    asked_at: float = float("-inf")
    told_at: float = float("-inf")
    refused_at: float = float("-inf")
    good: int = 0


class Breaking:
    """The breaker of one run.

    Parameters:
        breakers: `None` where there is no Redis for it: then all may run, and nothing is told.
        gates: does something with the broker's gates, where it has any.
        limit: seconds after which a run is ended; no other probe joins one before.
    """

    _of_group: ClassVar[dict[tuple[int, str], Breakers | None]] = {}
    _seen: ClassVar[dict[tuple[int, str, str], Seen]] = {}

    def __init__(
        self,
        breaker: Breaker | None,
        group: str,
        breakers: Breakers | None,
        gates: Callable[[Callable[[Gates], None]], None],
        limit: float | None = None,
    ) -> None:
        self._breaker, self._group, self._breakers, self._gates = breaker, group, breakers, gates
        self._limit = limit or 0.0
        self._probe, self._admitted_at = "", 0.0
        self._first_failed_at: int | None = None
        name = breaker.dependency if breaker else ""
        self._seen_here = self._seen.setdefault((os.getpid(), group, name), Seen())

    @classmethod
    def of(cls, task: MessageTask[..., Any], group: str) -> "Breaking":
        """That of a task's deliveries that a group has handed off."""
        if task.breaker is None or not group:
            return cls(None, group, None, lambda _: None)
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), group)
        if key not in cls._of_group:
            cls._of_group[key] = _breakers(task.app, group)
        limit = Limits.of(task).hard
        return cls(task.breaker, group, cls._of_group[key], partial(with_gates, task.app), limit)

    def admits(self) -> bool:
        """Whether the next delivery may run."""
        breaker, breakers, seen = self._breaker, self._breakers, self._seen_here
        self._probe = ""
        if breaker is None or breakers is None:
            return True
        now = time.monotonic()
        if now - seen.asked_at >= HOLDS:
            self._ask(lambda: breakers.look({breaker.dependency: breaker.terms})[breaker.dependency])
        if seen.known.is_closed:
            return True
        if now - seen.refused_at < PAUSE / 2:
            return False
        probe = uuid.uuid4().hex
        within = max(breaker.terms.probe_within, self._limit + ENDED_WITHIN if self._limit else 0.0)
        terms = replace(breaker.terms, probe_within=within, probe_ends=bool(self._limit))
        known = self._ask(lambda: breakers.admit(breaker.dependency, terms, probe))
        if known.granted:
            self._probe, self._admitted_at = probe, now
        else:
            seen.refused_at = now
        return known.granted

    def forgiven(self, delivery: Delivery) -> Delivery:
        """The delivery with what failed in the last outage counted as postponed: it was not its fault."""
        failed, first = delivery.attempts.failed, delivery.first_failed_at
        self._first_failed_at = first
        if self._breaker is None or first is None or not self._seen_here.known.covers(first / 1000):
            return delivery
        attempts = delivery.attempts.plus(failed=-failed, postponed=failed)
        message = replace(delivery.message, attempts=attempts)
        return replace(delivery, message=message, attempts=attempts, first_failed_at=None)

    def good(self) -> None:
        """A run has succeeded."""
        if self._breaker is None:
            return
        self._seen_here.good += 1
        if self._probe or time.monotonic() - self._seen_here.told_at >= TELL_EVERY:
            self._tell()

    def judged(self, delivery: Delivery, error: BaseException, decision: Decision, its_own: bool = False) -> Decision:
        """What becomes of a delivery that failed: while what it needs is down that spends nothing.

        Parameters:
            its_own: whether a person has said, since it was declared, that the error is the message's own.
        """
        if self._breaker is None:
            return decision
        says = "nothing" if its_own else self._breaker.says(error, decision)
        identity = delivery.identity
        if says == "nothing":
            if self._probe:
                self._tell(unclear=True)
            return decision
        # As it is tried again, what failed in the outage too is no witness: it may be broken itself.
        ramps = self._seen_here.known.state == "ramping"
        first = self._first_failed_at if ramps else delivery.first_failed_at
        age = _age(first)
        last = isinstance(decision, Bury) and decision.reason in (EXHAUSTED, EXPIRED)
        quoted = _quoted(str(Failure.of(error, traceback=False)))
        known = self._tell(**{says: (identity,), "age": age, "last": last, "error": quoted})
        return decision if known.is_closed else Again(PAUSE, spent=False)

    def overran(self, delivery: Delivery, headers: dict[str, Any]) -> Delivery:
        """The delivery, where its last run went on until the hard limit ended it; what it needs may hang.

        That is a failure as any other, told now: who was to tell it is dead. While that is down it counts as postponed.

        Parameters:
            headers: of its message, by which its next loss is counted.
        """
        if self._breaker is None or not delivery.attempts.lost or not overran(delivery.error):
            return delivery
        if self._hung(delivery, last=False).is_closed:
            return delivery
        found = cleared_of_losses(delivery)
        headers[LOST] = 0
        return found

    def spares(self, delivery: Delivery) -> bool:
        """Whether one does not die of its time limit, as what it needs hangs, for all that is known."""
        return self._breaker is not None and not self._hung(delivery, last=True).is_closed

    def _hung(self, delivery: Delivery, last: bool) -> Known:
        assert self._breaker is not None
        if not self._breaker.hears_of_limits:
            return Known()
        age, quoted = _age(delivery.first_failed_at), _quoted(delivery.error)
        return self._tell(failed=(delivery.identity,), age=age, last=last, error=quoted)

    def _tell(self, **ended: Any) -> Known:
        breaker, breakers, seen = self._breaker, self._breakers, self._seen_here
        assert breaker is not None
        if breakers is None:
            return seen.known
        good, seen.good, seen.told_at = seen.good, 0, time.monotonic()
        probe, self._probe = self._probe, ""
        ran = time.monotonic() - self._admitted_at if probe else 0.0
        told = Ended(good, ran=ran, **ended)
        return self._ask(lambda: breakers.report(breaker.dependency, breaker.terms, told, probe))

    def _ask(self, ask: Callable[[], Known]) -> Known:
        """What is known now; without an answer all may run."""
        seen = self._seen_here
        seen.asked_at = time.monotonic()
        try:
            seen.known = ask()
        except BridgeError as error:
            logger.debug("%s", error)
            seen.known = Known()
        self._act(seen.known)
        return seen.known

    def _act(self, known: Known) -> None:
        breaker = self._breaker
        if breaker is None or known.before == known.state:
            return
        say(breaker.dependency, known)
        self._gates(lambda gates: bring_in_line(gates, self._group, breaker.dependency, known))


def _quoted(error: str) -> str:
    """An error in one line, for whoever asks why a breaker is open."""
    return cut(" ".join(error.split()), ERROR_SHOWN)


def _age(first_failed_at: int | None) -> float:
    return 0.0 if first_failed_at is None else max(0.0, time.time() - first_failed_at / 1000)


def say(dependency: str, known: Known) -> None:
    """One line, by whoever has seen it change."""
    if line := known.words(dependency):
        logger.log(*line)


def _breakers(app: Celery, group: str) -> Breakers | None:
    ledger = Ledger.of(settings.load(app, os.environ).of_group(group), timeout=ANSWER_WITHIN)
    return Breakers(ledger) if ledger else None
