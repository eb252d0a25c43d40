"""The decision on a failed delivery: retry it, make it a dead letter, halt its topic, or drop it (pure).

Here it is decided whether an error is permanent, and with which reason a delivery dies. Some exceptions are explicit
requests of the handler and come first; then `retry_when`, the lists of classes and the number of retries decide.
retry_policy.py has those options; outcome_actions.py of tasks/execution acts on the decision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from celery.exceptions import Ignore, Reject

from bridge.formats.delivery import Message
from bridge.formats.failure import kind_name
from tasks.errors import DeadLetter, RetryAsked, RetryLater, StopConsuming, Undecodable
from tasks.policy.retry_policy import ErrorClasses, RetryPolicy
from tasks.policy.retry_when_function import RetryAnswer, ask_retry_when

EXHAUSTED: Final = "exhausted"
PERMANENT: Final = "permanent"
UNDECODABLE: Final = "undecodable"
EXPIRED: Final = "expired"
POISON: Final = "poison"
UNKNOWN_HANDLER: Final = "unknown_handler"
#: Every value of the `reason` header.
REASONS: Final = (EXHAUSTED, PERMANENT, UNDECODABLE, POISON, EXPIRED, UNKNOWN_HANDLER)


@dataclass(frozen=True, slots=True)
class RetryDelivery:
    """Run it again after `delay` seconds; `spent` says whether that uses up a retry."""

    delay: float
    spent: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetterDelivery:
    """Write a dead letter with this reason; `why` is what `retry_when` says beside the error."""

    reason: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class HaltTopic:
    """The handler asks to stop the topic: the message is kept, and the topic halted."""


@dataclass(frozen=True, slots=True)
class DropDelivery:
    """The handler raised Celery's `Ignore`: it is done with the message."""


FailureDecision = RetryDelivery | DeadLetterDelivery | HaltTopic | DropDelivery


def decide_failure(
    policy: RetryPolicy,
    error: BaseException,
    failures: int,
    age: float = 0.0,
    *,
    real: Callable[[float], float] = float,
    once: bool = False,
    message: Message | None = None,
    report: Callable[[str], None] | None = None,
) -> FailureDecision:
    """Return the decision on a delivery whose handler raised.

    Parameters:
        policy: the one that is in force for the handler.
        error: what the handler raised.
        failures: how many of its runs before this one spent a retry.
        age: seconds since its first failure.
        real: seconds after which a retry really starts that is to start after so many: those of its retry topic.
        once: whether it has this attempt alone: a failure that would be retried is its last. What spends no
            retry is put off as ever.
        message: for `retry_when`, which is not asked without one.
        report: told why an answer of `retry_when` was not taken.
    """
    decision = _find_requested_decision(policy, error, failures)
    if decision is None and policy.retry_when is not None and message is not None:
        answer = ask_retry_when(policy.retry_when, message, error)
        if answer.fault and report is not None:
            report(answer.fault)
        decision = _decide_answer(policy, answer, failures)
    decision = decision or _decide_by_class(policy, error) or _decide_by_count(policy, failures)
    if once and isinstance(decision, RetryDelivery) and decision.spent:
        return DeadLetterDelivery(EXHAUSTED)
    if (
        isinstance(decision, RetryDelivery)
        and policy.give_up_after is not None
        and age + real(decision.delay) > policy.give_up_after
    ):
        return DeadLetterDelivery(EXPIRED)
    return decision


def _find_requested_decision(policy: RetryPolicy, error: BaseException, failures: int) -> FailureDecision | None:
    """Return the decision that a handler asked for by its exception; `None` if the policy decides."""
    match error:
        case Ignore():
            return DropDelivery()
        case DeadLetter():
            return DeadLetterDelivery(PERMANENT)
        case Undecodable():
            return DeadLetterDelivery(UNDECODABLE)
        case StopConsuming():
            return HaltTopic()
        case RetryLater():
            return RetryDelivery(error.delay, spent=False)
        case RetryAsked():
            if error.limit is not None and failures >= error.limit:
                return DeadLetterDelivery(EXHAUSTED)
            return RetryDelivery(error.delay)
        case Reject():
            requeue: bool = vars(error)["requeue"]
            return RetryDelivery(policy.delay(0), spent=False) if requeue else DeadLetterDelivery(PERMANENT)
    return None


def _decide_answer(policy: RetryPolicy, answer: RetryAnswer, failures: int) -> FailureDecision | None:
    """Return the decision of a `retry_when` answer; its retries count like any other."""
    if answer.dead is not None:
        return DeadLetterDelivery(PERMANENT, answer.dead)
    if answer.seconds is None:
        return None
    return DeadLetterDelivery(EXHAUSTED) if _is_exhausted(policy, failures) else RetryDelivery(answer.seconds)


def _decide_by_class(policy: RetryPolicy, error: BaseException) -> FailureDecision | None:
    """Return the decision of the options for the error's class, if they list it."""
    if is_listed(error, policy.stop_for):
        return HaltTopic()
    if is_listed(error, policy.dead_letter_for + policy.dont_autoretry_for):
        return DeadLetterDelivery(PERMANENT)
    # A BaseException (SystemExit, GeneratorExit) is retried like any failure: it is not listed.
    if isinstance(error, Exception) and not is_listed(error, policy.autoretry_for):
        return DeadLetterDelivery(PERMANENT)
    return None


def _decide_by_count(policy: RetryPolicy, failures: int) -> FailureDecision:
    return DeadLetterDelivery(EXHAUSTED) if _is_exhausted(policy, failures) else RetryDelivery(policy.delay(failures))


def _is_exhausted(policy: RetryPolicy, failures: int) -> bool:
    return policy.retries is not None and failures >= policy.retries


def is_listed(error: BaseException, kinds: ErrorClasses) -> bool:
    """Return whether an error is an instance of one of these classes."""
    names = {kind for kind in kinds if isinstance(kind, str)}
    return isinstance(error, tuple(kind for kind in kinds if isinstance(kind, type))) or (
        bool(names) and any(kind_name(kind) in names for kind in type(error).__mro__)
    )
