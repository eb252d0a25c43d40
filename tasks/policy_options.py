"""The options of `@handler` that say what becomes of failures, and the policy that they make (pure)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from celery import Task

from tasks.errors import LONGEST_DELAY, HandlerError
from tasks.policy import MAX_RETRIES, Errors, Policy
from tasks.retry_when import check_function

#: Options of Celery's autoretry that the policy takes over, so that they act once.
RETRY_OPTIONS: Final = (
    "autoretry_for",
    "dont_autoretry_for",
    "retry_backoff",
    "retry_backoff_max",
    "retry_jitter",
    "retry_kwargs",
)

#: Every option that the policy is made of. `default_retry_delay` stays Celery's as well.
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


def policy_from(name: str, given: Mapping[str, Any]) -> Policy:
    """The policy that a handler's options make.

    Parameters:
        given: those of `POLICY_OPTIONS` that are said.

    Raises:
        HandlerError: one is out of range.
    """
    try:
        return _policy(given)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"{name}: {error}") from error


def _policy(given: Mapping[str, Any]) -> Policy:
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
    return Policy(
        autoretry_for=_errors(given.get("autoretry_for", (Exception,))),
        dont_autoretry_for=_errors(given.get("dont_autoretry_for", ())),
        dead_letter_for=_errors(given.get("dead_letter_for", ())),
        stop_for=_errors(given.get("stop_for", ())),
        max_retries=None if max_retries is None else _number(max_retries, "max_retries", whole=True),
        delays=_delays(given.get("retry_delays")),
        fixed_delay=None if backoff else _number(fixed, "countdown", most=LONGEST_DELAY),
        backoff=_number(backoff, "retry_backoff", most=LONGEST_DELAY),
        backoff_max=_number(given.get("retry_backoff_max", 600), "retry_backoff_max", most=LONGEST_DELAY, whole=True),
        jitter=bool(given.get("retry_jitter", not listed)),
        give_up_after=_optional_seconds(given.get("give_up_after"), "give_up_after"),
        retry_when=check_function(given.get("retry_when")),
    )


def _errors(given: Any) -> Errors:
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
