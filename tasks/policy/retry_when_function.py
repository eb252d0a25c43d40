"""`retry_when`: a function of the user's that decides on a failed message.

This module calls it and checks its answer; `tasks.policy.failure_decision` decides. An error or an invalid answer
counts as no answer, with the reason.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from celery.exceptions import WorkerShutdown, WorkerTerminate

from bridge.formats.delivery import Attempts, Message
from bridge.formats.failure import Failure
from tasks.errors import DeadLetter, HandlerError, fault_in_delay

#: `(message, error, attempts)` → seconds, `DeadLetter`, or `None`: the options decide. What a handler raises may be of
#: any class; a function says of which classes it knows.
RetryWhen = Callable[[Message, Any, Attempts], float | DeadLetter | type[DeadLetter] | None]


class RetryAnswer(NamedTuple):
    """The answer of a `retry_when` function; empty if the options decide.

    Attributes:
        seconds: until the retry.
        dead: why no retry can help, in the answer's words; may be empty.
        fault: why the answer was not taken.
    """

    seconds: float | None = None
    dead: str | None = None
    fault: str = ""


def ask_retry_when(function: RetryWhen, message: Message, error: BaseException) -> RetryAnswer:
    """Return a function's answer to a failure.

    Raises:
        WorkerShutdown, WorkerTerminate: the worker ends while it runs.
    """
    try:
        given = function(message, error, message.attempts)
        return _answer(function, given() if isinstance(given, type) and issubclass(given, DeadLetter) else given)
    except (WorkerShutdown, WorkerTerminate):
        raise
    except BaseException as raised:
        # Also SystemExit: code of the user's runs here, and whatever it does, the delivery must go on.
        return RetryAnswer(fault=f"{function_name(function)} raised {Failure.from_error(raised, traceback=False)}")


def _answer(function: RetryWhen, given: object) -> RetryAnswer:
    if given is None:
        return RetryAnswer()
    if isinstance(given, DeadLetter):
        return RetryAnswer(dead=Failure.from_error(given, traceback=False).error_message)
    if inspect.iscoroutine(given):
        given.close()
    if not isinstance(given, int | float) or isinstance(given, bool):
        kind = type(given).__name__
        return RetryAnswer(
            fault=f"{function_name(function)} answers with seconds, DeadLetter or None; its answer was a {kind}"
        )
    if fault := fault_in_delay(given):
        return RetryAnswer(fault=f"{function_name(function)}: its answer {fault.rstrip('.')}")
    return RetryAnswer(seconds=float(given))


def function_name(function: Callable[..., Any]) -> str:
    """Return a function's qualified name: `orders.retries.by_status`."""
    inner: Any = function
    while hasattr(inner, "func") and not hasattr(inner, "__qualname__"):
        inner = inner.func
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    return f"{inner.__module__}.{inner.__qualname__}"


def check_retry_when(given: Any) -> RetryWhen | None:
    """Return the function given as `retry_when=`, if it can be called.

    Raises:
        HandlerError: it cannot.
    """
    if given is None:
        return None
    called = given if inspect.isroutine(given) else getattr(type(given), "__call__", None)  # noqa: B004
    if not callable(given) or inspect.isclass(given):
        raise HandlerError(f"retry_when takes a function of (message, error, attempts); it was given {given!r}.")
    if any(kind(candidate) for kind in _NOT_AT_ONCE for candidate in (given, called, getattr(given, "func", None))):
        raise HandlerError(f"retry_when: {function_name(given)} is async, or yields: it must answer when it is called.")
    try:
        inspect.signature(given).bind(None, None, None)
    except TypeError:
        raise HandlerError(
            f"retry_when: {function_name(given)}{inspect.signature(given)} is called with (message, error, attempts)."
        ) from None
    except ValueError:
        # Some functions written in C have no signature.
        pass
    function: RetryWhen = given
    return function


_NOT_AT_ONCE = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
