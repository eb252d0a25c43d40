"""The lease of a message: whether this worker still has it, or was silent so long that another one has it."""

from collections.abc import Callable
from typing import Any, Final

from lossless.transport.message_ownership import TAKEN_AT, is_given_away, read_host_clock
from tasks.errors import GivenAway
from tasks.execution.execution_settings import read_execution_settings

#: How often a process checks its lease in the time after which a silent worker counts as dead.
CHECKS: Final = 3


class MessageLease:
    """The lease of one message.

    Parameters:
        tag: the message's delivery tag; `None`: it has no lease to check.
        taken_at: when it was taken, by `lossless.transport.message_ownership.read_host_clock`.
        every: seconds for which an answer holds.
        is_given_away: asks the broker.
    """

    def __init__(
        self,
        tag: str | None,
        taken_at: float,
        every: float,
        is_given_away: Callable[[str], bool],
        clock: Callable[[], float] = read_host_clock,
    ) -> None:
        self._tag, self._sure_at, self._every = tag, taken_at, every
        self._is_given_away, self._clock = is_given_away, clock

    @classmethod
    def from_request(cls, task: Any) -> "MessageLease":
        """Return the lease of a task's current message."""
        properties = task.request.properties or {}
        taken_at = properties.get(TAKEN_AT)
        tag = properties.get("delivery_tag") if isinstance(taken_at, float) else None
        every = read_execution_settings(task.app).dead_after / CHECKS
        return cls(tag, taken_at or read_host_clock(), every, lambda held: is_given_away(task.app, held))

    def check(self) -> None:
        """Return if the message is still this worker's.

        Raises:
            GivenAway: another worker has it.
        """
        if self._tag is None or self._clock() - self._sure_at < self._every:
            return
        self._sure_at = self._clock()
        if self._is_given_away(self._tag):
            raise GivenAway("this worker was silent for so long that its messages went to other workers")
