"""The decision on a failed delivery: retry it, make it a dead letter, halt its topic, or drop it (pure).

Some exceptions are explicit requests of the handler: `find_requested_decision` has their decisions. For all others the
handler's policy decides (retry_policy.py).
"""

from dataclasses import dataclass
from typing import Final

from celery.exceptions import Ignore, Reject

from tasks.errors import DeadLetter, RetryAsked, RetryLater, StopConsuming, Undecodable
from tasks.policy.retry_backoff import RetryBackoff

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


def find_requested_decision(error: BaseException, failures: int, backoff: RetryBackoff) -> FailureDecision | None:
    """Return the decision that a handler asked for by its exception; `None` if the policy decides.

    Parameters:
        failures: how many of the delivery's runs before this one spent a retry.
        backoff: for the wait after `Reject(requeue=True)`.
    """
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
            return RetryDelivery(backoff.delay(0), spent=False) if requeue else DeadLetterDelivery(PERMANENT)
    return None
