"""The retry policy of a handler, and the options of `@handler` that make it, parsed and validated (pure).

failure_decision.py (`decide_failure`) decides by the policy on a failed delivery: retry, dead letter or halt.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from celery import Task

from tasks.errors import LONGEST_DELAY, HandlerError
from tasks.policy.retry_backoff import CELERYS_MULTIPLIER, MAX_RETRIES, RetryBackoff
from tasks.policy.retry_when_function import RetryWhen, check_retry_when

#: Classes, or their names (`orders.errors.CardDeclined`), where a person has given them at run time.
ErrorClasses = tuple[type[BaseException] | str, ...]


@dataclass(frozen=True, slots=True)
class RetryPolicy(RetryBackoff):
    """The retry policy of a handler: its backoff, the errors that are not retried, and the age that ends retries.

    Attributes:
        autoretry_for: the errors that are retried; an `Exception` of another class is dead at once.
        dont_autoretry_for: those among them that are not.
        dead_letter_for: those that are dead at once.
        stop_for: those that halt the topic.
        give_up_after: seconds from the first failure; a retry that would start later is not made.
        retry_when: asked before the lists of classes and the delays.
    """

    autoretry_for: ErrorClasses = (Exception,)
    dont_autoretry_for: ErrorClasses = ()
    dead_letter_for: ErrorClasses = ()
    stop_for: ErrorClasses = ()
    give_up_after: float | None = None
    retry_when: RetryWhen | None = None


#: Options of Celery's autoretry, and the multiplier beside them. The policy takes them over, so that they act once.
RETRY_OPTIONS: Final = (
    "autoretry_for",
    "dont_autoretry_for",
    "retry_backoff",
    "retry_backoff_multiplier",
    "retry_backoff_max",
    "retry_jitter",
    "retry_kwargs",
)

#: Every option that the policy is made of. `default_retry_delay` stays Celery's as well.
#: Also declared in tasks/declaration/handler_options.py (`Options`); run-time changes: policy_override.py.
POLICY_OPTIONS: Final = (
    *RETRY_OPTIONS,
    "max_retries",
    "default_retry_delay",
    "retry_delays",
    "dead_letter_for",
    "stop_for",
    "give_up_after",
    "retry_when",
)


def make_policy(name: str, given: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy of a handler's options.

    Parameters:
        given: those of `POLICY_OPTIONS` that are set.

    Raises:
        HandlerError: one is out of range.
    """
    try:
        return _build_policy(given)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"{name}: {error}") from error


def _build_policy(given: Mapping[str, Any]) -> RetryPolicy:
    kwargs = given.get("retry_kwargs") or {}
    for key in kwargs:
        if key not in ("max_retries", "countdown"):
            raise ValueError(f"retry_kwargs takes max_retries and countdown; it was given {key!r}.")
    max_retries = kwargs.get("max_retries", given.get("max_retries", MAX_RETRIES))
    fixed = kwargs.get("countdown", given.get("default_retry_delay"))
    backoff = given.get("retry_backoff", fixed is None)
    if not backoff and fixed is None:
        fixed = Task.default_retry_delay
    listed = given.get("retry_delays") is not None
    return RetryPolicy(
        autoretry_for=_errors(given.get("autoretry_for", (Exception,))),
        dont_autoretry_for=_errors(given.get("dont_autoretry_for", ())),
        dead_letter_for=_errors(given.get("dead_letter_for", ())),
        stop_for=_errors(given.get("stop_for", ())),
        max_retries=None if max_retries is None else _number(max_retries, "max_retries", whole=True),
        delays=_delays(given.get("retry_delays")),
        fixed_delay=None if backoff else _number(fixed, "countdown", most=LONGEST_DELAY),
        backoff=_number(backoff, "retry_backoff", most=LONGEST_DELAY),
        backoff_multiplier=_multiplier(given.get("retry_backoff_multiplier", CELERYS_MULTIPLIER)),
        backoff_max=_number(given.get("retry_backoff_max", 600), "retry_backoff_max", most=LONGEST_DELAY, whole=True),
        jitter=bool(given.get("retry_jitter", not listed)),
        give_up_after=_optional_seconds(given.get("give_up_after"), "give_up_after"),
        retry_when=check_retry_when(given.get("retry_when")),
    )


def _errors(given: Any) -> ErrorClasses:
    kinds = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"exception classes are wanted; it was given {kind!r}.")
    return tuple(kinds)


def _delays(given: Any) -> tuple[float, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"retry_delays takes a sequence of seconds; it was given {given!r}.")
    return tuple(_number(delay, "retry_delays", most=LONGEST_DELAY) for delay in given)


def _optional_seconds(given: Any, what: str) -> float | None:
    return None if given is None else _number(given, what)


def _multiplier(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= sys.float_info.max:
        raise ValueError(f"retry_backoff_multiplier takes finite numbers from 1 on; it was given {given!r}.")
    return given


def _number(given: Any, what: str, *, most: float = float("inf"), whole: bool = False) -> Any:
    if isinstance(given, bool) and what == "retry_backoff":
        return 1
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise ValueError(f"{what} takes numbers from 0 on; it was given {given!r}.")
    if given > most:
        raise ValueError(f"{what} takes seconds, {most:,.0f} (a year) at most; it was given {given!r}.")
    if whole and given != int(given):
        raise ValueError(f"{what} takes whole numbers from 0 on; it was given {given!r}.")
    return int(given) if whole else given
