"""The circuit breaker in one run of a batch: it admits deliveries, and reports their outcomes.

While Redis does not answer, deliveries run as without a breaker.
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
from bridge.formats.delivery import Delivery
from bridge.formats.failure import Failure, cut
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import BreakerStatus, CircuitBreakers, RunResults, align_gates
from lossless.transport.message_gates import MessageGates
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution.halt_gate import with_gates
from tasks.execution.process_loss import LOST_HEADER, clear_losses, overran_limit
from tasks.execution.time_limits import TimeLimits
from tasks.policy.breaker_options import Breaker
from tasks.policy.failure_decision import EXHAUSTED, EXPIRED, DeadLetterDelivery, FailureDecision, RetryDelivery

logger = logs.harmless_logger(__name__)

#: Seconds for which a status that was read holds, and seconds between reports of successes.
HOLDS: Final = 1.0
REPORT_EVERY: Final = 0.5
#: Seconds after which a refused delivery is retried; its gate keeps it longer.
BREAKER_PAUSE: Final = 1.0
#: The same for a delivery that has never failed, which waits at another gate than failed ones.
REFUSED_PAUSE: Final = 0.5
#: Seconds from a run's hard limit until it has ended.
ENDED_WITHIN: Final = 1.0
#: Characters of an error that are quoted when a breaker opens.
ERROR_SHOWN: Final = 200
#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 1.0


@dataclass
class SeenDependency:
    """The state of a dependency's breaker as this process knows it, and the successes not reported yet."""

    known: BreakerStatus = field(default_factory=BreakerStatus)
    asked_at: float = float("-inf")
    reported_at: float = float("-inf")
    refused_at: float = float("-inf")
    successes: int = 0


class BreakerGuard:
    """The circuit breaker of one run.

    Parameters:
        breakers: `None` without a Redis for them: then all may run, and nothing is reported.
        gates: calls a function with the broker's gates, if it has any.
        limit: seconds after which a run is ended; until then no second trial request is made.

    Attributes:
        is_used: whether there is a breaker that may refuse deliveries.
    """

    _of_group: ClassVar[dict[tuple[int, str], CircuitBreakers | None]] = {}
    _seen: ClassVar[dict[tuple[int, str, str], SeenDependency]] = {}

    def __init__(
        self,
        breaker: Breaker | None,
        group: str,
        breakers: CircuitBreakers | None,
        gates: Callable[[Callable[[MessageGates], None]], None],
        limit: float | None = None,
    ) -> None:
        self._breaker, self._group, self._breakers, self._gates = breaker, group, breakers, gates
        self.is_used = breaker is not None
        self._limit = limit or 0.0
        self._trial, self._admitted_at = "", 0.0
        self._first_failed_at: int | None = None
        name = breaker.dependency if breaker else ""
        self._dependency = self._seen.setdefault((os.getpid(), group, name), SeenDependency())

    @classmethod
    def for_task(cls, task: MessageTask[..., Any], group: str) -> "BreakerGuard":
        """Return the guard of a task's deliveries that a group has handed off."""
        if task.breaker is None or not group:
            return cls(None, group, None, lambda _: None)
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), group)
        if key not in cls._of_group:
            cls._of_group[key] = _open_breakers(task.app, group)
        limit = TimeLimits.from_request(task).hard
        return cls(task.breaker, group, cls._of_group[key], partial(with_gates, task.app), limit)

    def admits(self) -> bool:
        """Return whether the next delivery may run."""
        breaker, breakers, seen = self._breaker, self._breakers, self._dependency
        self._trial = ""
        if breaker is None or breakers is None:
            return True
        now = time.monotonic()
        if now - seen.asked_at >= HOLDS:
            self._ask(lambda: breakers.read_statuses({breaker.dependency: breaker.terms})[breaker.dependency])
        if seen.known.is_closed:
            return True
        if now - seen.refused_at < BREAKER_PAUSE / 2:
            return False
        trial = uuid.uuid4().hex
        within = max(breaker.terms.probe_within, self._limit + ENDED_WITHIN if self._limit else 0.0)
        terms = replace(breaker.terms, probe_within=within, probe_ends=bool(self._limit))
        known = self._ask(lambda: breakers.admit(breaker.dependency, terms, trial))
        if known.granted:
            self._trial, self._admitted_at = trial, now
        else:
            seen.refused_at = now
        return known.granted

    def forgive(self, delivery: Delivery) -> Delivery:
        """Return the delivery with its failures in the last outage counted as postponed."""
        failed, first = delivery.attempts.failed, delivery.first_failed_at
        self._first_failed_at = first
        if self._breaker is None or first is None or not self._dependency.known.covers(first / 1000):
            return delivery
        attempts = delivery.attempts.plus(failed=-failed, postponed=failed)
        message = replace(delivery.message, attempts=attempts)
        return replace(delivery, message=message, attempts=attempts, first_failed_at=None)

    def note_success(self) -> None:
        """Note a successful run."""
        if self._breaker is None:
            return
        self._dependency.successes += 1
        if self._trial or time.monotonic() - self._dependency.reported_at >= REPORT_EVERY:
            self._report()

    def decide(
        self, delivery: Delivery, error: BaseException, decision: FailureDecision, its_own: bool = False
    ) -> FailureDecision:
        """Report a failure, and return the decision: while the breaker is open a failure spends no retry.

        Parameters:
            its_own: whether a person has declared at run time that the error is the message's own.
        """
        if self._breaker is None:
            return decision
        says = "nothing" if its_own else self._breaker.says(error, decision)
        identity = delivery.identity
        if says == "nothing":
            if self._trial:
                self._report(unclear=True)
            return decision
        # A delivery that failed in the outage too is no evidence while the breaker ramps up: it may be broken itself.
        ramps = self._dependency.known.state == "ramping"
        first = self._first_failed_at if ramps else delivery.first_failed_at
        age = _age(first)
        last = isinstance(decision, DeadLetterDelivery) and decision.reason in (EXHAUSTED, EXPIRED)
        quoted = _quoted(str(Failure.from_error(error, traceback=False)))
        known = self._report(**{says: (identity,), "age": age, "last": last, "error": quoted})
        return decision if known.is_closed else RetryDelivery(BREAKER_PAUSE, spent=False)

    def report_overrun(self, delivery: Delivery, headers: dict[str, Any]) -> Delivery:
        """Report that a delivery's last run overran its hard limit, and return the delivery.

        The process of that run is dead and could not report it. While the breaker is open it counts as postponed.

        Parameters:
            headers: of its message, which count its losses.
        """
        if self._breaker is None or not delivery.attempts.lost or not overran_limit(delivery.error):
            return delivery
        if self._hung(delivery, last=False).is_closed:
            return delivery
        headers[LOST_HEADER] = 0
        return clear_losses(delivery)

    def reports_hang(self, delivery: Delivery) -> bool:
        """Report a last overrun, and return whether the breaker is open, so that the delivery is spared."""
        return self._breaker is not None and not self._hung(delivery, last=True).is_closed

    def _hung(self, delivery: Delivery, last: bool) -> BreakerStatus:
        assert self._breaker is not None
        if not self._breaker.hears_of_limits:
            return BreakerStatus()
        age, quoted = _age(delivery.first_failed_at), _quoted(delivery.error)
        return self._report(failed=(delivery.identity,), age=age, last=last, error=quoted)

    def _report(self, **ended: Any) -> BreakerStatus:
        breaker, breakers, seen = self._breaker, self._breakers, self._dependency
        assert breaker is not None
        if breakers is None:
            return seen.known
        successes, seen.successes, seen.reported_at = seen.successes, 0, time.monotonic()
        trial, self._trial = self._trial, ""
        ran = time.monotonic() - self._admitted_at if trial else 0.0
        results = RunResults(successes, ran=ran, **ended)
        return self._ask(lambda: breakers.report(breaker.dependency, breaker.terms, results, trial))

    def _ask(self, ask: Callable[[], BreakerStatus]) -> BreakerStatus:
        """Ask Redis for the breaker's status; without an answer all may run."""
        seen = self._dependency
        seen.asked_at = time.monotonic()
        try:
            seen.known = ask()
        except BridgeError as error:
            logger.debug("%s", error)
            seen.known = BreakerStatus()
        self._act(seen.known)
        return seen.known

    def _act(self, known: BreakerStatus) -> None:
        breaker = self._breaker
        if breaker is None or known.before == known.state:
            return
        log_breaker_change(breaker.dependency, known)
        self._gates(lambda gates: align_gates(gates, self._group, breaker.dependency, known))


def _quoted(error: str) -> str:
    """Return an error in one line, as the reason why a breaker is open."""
    return cut(" ".join(error.split()), ERROR_SHOWN)


def _age(first_failed_at: int | None) -> float:
    return 0.0 if first_failed_at is None else max(0.0, time.time() - first_failed_at / 1000)


def log_breaker_change(dependency: str, known: BreakerStatus) -> None:
    """Log the change of a breaker, in the process that has seen it first."""
    if line := known.words(dependency):
        logger.log(*line)


def _open_breakers(app: Celery, group: str) -> CircuitBreakers | None:
    ledger = Ledger.from_settings(settings.load(app, os.environ).of_group(group), timeout=ANSWER_WITHIN)
    return CircuitBreakers(ledger) if ledger else None
