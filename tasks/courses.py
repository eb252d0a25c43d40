"""What a policy makes of a delivery that fails every time, and always with the same error (pure)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from celery.exceptions import Reject

from bridge.records.failure import kind_name
from tasks.errors import RetryAsked, RetryLater
from tasks.policy import Again, Bury, Decision, Halt, Policy

#: Retries that are looked ahead; what is retried more often is retried without an end, for all that anybody can wait.
MOST: Final = 10_000


class Course(NamedTuple):
    """The retries of a delivery, and its end.

    Attributes:
        waits: seconds until each retry begins, from its failure on: what they are on average where they are drawn.
        end: the reason of its dead letter; "halt"; "endless"; "done", where the handler gives it up (`Ignore`); or
            "asked", where each failure says itself what is to become of it (`RetryLater`, `self.retry()`, `Reject`).
        known: whether the error's class is imported here. Of one that is not, nobody knows what it is derived from.
    """

    waits: tuple[float, ...]
    end: str
    known: bool


def course(policy: Policy, error_class: str, real: Callable[[float], float] = float) -> Course:
    """What becomes of a delivery, from its first failure on; `retry_when` is not asked.

    Parameters:
        error_class: module and name, as dead letters have it.
        real: seconds after which a retry really starts that is to start after so many.
    """
    error = _imported(error_class)
    known = error is not None
    error = error or _stand_in(error_class)
    if isinstance(error, RetryLater | RetryAsked | Reject):
        return Course((), "asked", known)
    # Drawn evenly from nothing to the whole: half of it.
    part = 0.5 if policy.jitter and (policy.fixed_delay is None or policy.delays is not None) else 1.0
    steady = replace(policy, jitter=False, retry_when=None)
    waits: list[float] = []
    age = 0.0
    while len(waits) < MOST:
        decision = steady.decide(error, len(waits), age, real=lambda wait: real(wait * part))
        if not isinstance(decision, Again):
            return Course(tuple(waits), _end(decision), known)
        waits.append(real(decision.delay * part))
        age += waits[-1]
    return Course(tuple(waits), "endless", known)


def exception_classes(kind: type[BaseException] = BaseException) -> Iterator[type[BaseException]]:
    """Every class of exceptions that is imported."""
    yield kind
    for each in type.__subclasses__(kind):
        yield from exception_classes(each)


def _end(decision: Decision) -> str:
    match decision:
        case Bury(reason, _):
            return reason
        case Halt():
            return "halt"
    return "done"


def _imported(error_class: str) -> BaseException | None:
    """An error of that class: nothing is asked of it but what it is."""
    for kind in exception_classes():
        if kind_name(kind) == error_class:
            try:
                return kind.__new__(kind)
            except Exception:
                return None
    return None


def _stand_in(error_class: str) -> BaseException:
    module, _, name = error_class.rpartition(".")
    kind = type(name or "Unknown", (Exception,), {"__module__": module or "builtins"})
    found: BaseException = kind()
    return found
