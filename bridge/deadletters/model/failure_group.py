"""Failure groups: letters are of one group if the same handler failed with the same exception class at the same
location (pure).
"""

from functools import lru_cache
from typing import NamedTuple

from bridge.deadletters.model.digest import compute_digest
from bridge.deadletters.model.failure_location import find_failure_location
from bridge.deadletters.model.traceback_parts import strip_message


class FailureGroup(NamedTuple):
    """A group of equal failures.

    Attributes:
        place: the first frame of the user's code that raised it, without a line number: `orders/bank.py:pay`.
    """

    handler: str
    error_class: str
    place: str

    @property
    def digest(self) -> bytes:
        """Return the key in the database."""
        return compute_digest(*self)


def find_failure_group(handler: str, error_class: str, traceback: str, message: str) -> FailureGroup:
    """Return the group of a failure.

    Parameters:
        traceback: as Python or a JVM prints it, or "".
        message: of the exception; where the traceback repeats it, it says nothing about the location.
    """
    return FailureGroup(handler, error_class, _find_location(strip_message(traceback, message), handler))


@lru_cache(maxsize=256)
def _find_location(traceback: str, handler: str) -> str:
    """Return the location of a traceback without its message; cached, because letters of one group share it."""
    return find_failure_location(traceback, handler)
