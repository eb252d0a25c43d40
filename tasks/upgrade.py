"""`upgrade`: a function of the user's that makes, of a value written for an older model, one for today's."""

import inspect
from collections.abc import Callable
from typing import Any, Final

from tasks.errors import HandlerError
from tasks.retry_when import named

#: Of a decoded value, as it was before any model saw it, → the value for today's model.
Upgrade = Callable[[Any], Any]

_NOT_AT_ONCE: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_upgrade(given: Any, *, validates: bool) -> Upgrade | None:
    """What `upgrade=` was given, if it can be called.

    Parameters:
        validates: whether the handler's value is annotated with a model.

    Raises:
        HandlerError: it never could, or never would.
    """
    if given is None:
        return None
    called = given if inspect.isroutine(given) else getattr(type(given), "__call__", None)  # noqa: B004
    if not callable(given):
        raise HandlerError(f"upgrade takes a function of the decoded value; it was given {given!r}.")
    if any(kind(one) for kind in _NOT_AT_ONCE for one in (given, called, getattr(given, "func", None))):
        raise HandlerError(f"upgrade: {named(given)} is async, or yields: it must answer when it is called.")
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        raise HandlerError(
            f"upgrade: {named(given)}{inspect.signature(given)} is called with the value alone."
        ) from None
    except ValueError:
        # Some functions written in C tell nothing of their parameters.
        pass
    if not validates:
        raise HandlerError(
            "upgrade is called where a value does not validate, and here none is validated: annotate the handler's "
            "value with a model."
        )
    function: Upgrade = given
    return function


def upgraded(function: Upgrade, value: Any) -> Any:
    """What the function makes of a value.

    Raises:
        TypeError: it gives what is to be awaited.
    """
    found = function(value)
    if inspect.iscoroutine(found):
        found.close()
        raise TypeError(f"{named(function)} gives a coroutine, and no value")
    return found
