"""A failure: the class, message and traceback of an exception, as headers, logs and dead letters keep them."""

import re
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

#: A class at the beginning of `class: message`; a class of a function has `<locals>` in its name.
_CLASS: Final = re.compile(r"[^\W\d][\w.<>]*(?=:|\Z)")

#: Maximum length of `error_message`, in characters; a longer one is cut in the middle.
MAX_MESSAGE = 2_000
#: Maximum length of `error_traceback`, in characters; its end, which shows the fault, is kept.
MAX_TRACEBACK = 16_000
#: Maximum length of `error_class`, in characters.
MAX_CLASS = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a delivery.

    Attributes:
        error_class: module and name of the exception's class.
        error_message: its `str()`, cut to `MAX_MESSAGE` characters.
        error_traceback: cut to `MAX_TRACEBACK` characters.
        failed_at: milliseconds since the epoch.
    """

    error_class: str
    error_message: str
    error_traceback: str
    failed_at: int

    @classmethod
    def from_error(cls, error: BaseException, now: float | None = None, *, traceback: bool = True) -> "Failure":
        """Return the failure that an exception describes, even if the exception's own `str()` raises.

        Parameters:
            traceback: a retry carries none, and formatting it costs more than the rest of the retry.
        """
        return cls(
            error_class=cut(class_name(error), MAX_CLASS),
            error_message=cut(_message(error), MAX_MESSAGE),
            error_traceback=cut(_traceback(error), MAX_TRACEBACK) if traceback else "",
            failed_at=int((time.time() if now is None else now) * 1000),
        )

    def with_why(self, why: str) -> "Failure":
        """Return this failure with the reason why no retry can help; unchanged if `why` is empty."""
        if not why:
            return self
        return replace(
            self, error_message=cut(f"{why} ({self.error_message})" if self.error_message else why, MAX_MESSAGE)
        )

    def to_data(self) -> dict[str, Any]:
        """Return the failure as JSON-able data."""
        return {
            "error_class": self.error_class,
            "error_message": self.error_message,
            "error_traceback": self.error_traceback,
            "failed_at": self.failed_at,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Failure":
        """Return the failure from the data that `to_data` made."""
        return cls(
            str(data["error_class"]),
            str(data["error_message"]),
            str(data["error_traceback"]),
            int(data["failed_at"]),
        )

    def __str__(self) -> str:
        return f"{self.error_class}: {self.error_message}" if self.error_message else self.error_class


def class_name(error: BaseException) -> str:
    """Return module and name of an exception's class."""
    return kind_name(type(error))


def kind_name(kind: type[BaseException]) -> str:
    """Return module and name of an exception class; without the module for `builtins`, as in Python's tracebacks."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def read_error_class(text: str) -> str:
    """Return the class of an error that is written as `class: message`; empty if it does not begin with one."""
    found = _CLASS.match(text)
    return found[0] if found else ""


def cut(text: str, limit: int) -> str:
    """Return `text` in at most `limit` characters: a quarter from its start, the rest from its end."""
    if len(text) <= limit:
        return text
    mark = f" … {len(text) - limit} characters cut … "
    head = limit // 4
    tail = limit - head - len(mark)
    return text[:head] + mark + text[-tail:]


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        # The user's code runs here: whatever it raises, the dead letter must be written.
        return f"(str() of this {type(error).__name__} raised {type(second).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as second:
        return f"(the traceback could not be formatted: {type(second).__name__})"
