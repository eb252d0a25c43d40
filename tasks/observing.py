"""What only observes never decides: counting and logging are tried, and their own faults go no further."""

import logging
from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose filters, factories and handlers may raise: what it was to tell of goes on all the same."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or let it be."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            # Nobody can be told: the log is what fails.
            return

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave everything as it is."""
        return msg, kwargs


def log(name: str) -> Log:
    """The logger of a module, for all that lies on the way of a delivery."""
    return Log(logging.getLogger(name))


def harmless(observe: Callable[P, None]) -> Callable[P, None]:
    """A function that observes, whose faults nobody is told of: it is the telling that fails."""
    return observing(observe, lambda _: None)


def observing(observe: Callable[P, None], failed: Callable[[Exception], None]) -> Callable[P, None]:
    """A function that observes, made harmless: what it raises is told to `failed` and ends there."""

    @wraps(observe)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            observe(*args, **kwargs)
        except Exception as error:
            failed(error)

    return tried
