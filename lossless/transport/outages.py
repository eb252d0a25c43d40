"""A Redis that does not answer, or refuses: what of it may pass, and for how long it stops what it has stopped."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

import redis
from kombu.log import get_logger

from lossless.transport.replica import refused_by_replica

logger = get_logger("lossless.transport")

#: What a Redis that is down, starting, failing over, full or misconfigured raises. All of it may pass.
UNAVAILABLE = (redis.RedisError, OSError)

#: Seconds between attempts to reach a Redis that does not answer.
RETRY_INTERVAL = 0.5


def is_away(error: BaseException) -> bool:
    """Whether an error says that Redis is away or no master, and not that it refuses this one command."""
    return not isinstance(error, redis.ResponseError) or refused_by_replica(error)


class Reaching(Protocol):
    """Who finds out whether Redis answers: what an outage needs of the keeper."""

    def probe(self) -> None:
        """Find out at once, in another thread."""

    def answered_since(self, moment: float) -> bool:
        """Whether Redis has answered since a moment of the monotonic clock."""

    def explained(self, error: Exception) -> str:
        """Return an error as text, with what to do where that is known."""


class Outage:
    """Whether something is stopped since Redis failed it.

    Parameters:
        what: what is stopped, as the log names it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._since = self._until = 0.0
        self._said = ""

    def begins(self, error: Exception, keeper: Reaching) -> None:
        """Be told of a failure. It is logged once, until `ends`."""
        self._since = monotonic()
        self._until = self._since if is_away(error) else self._since + RETRY_INTERVAL
        keeper.probe()
        if repr(error) != self._said:
            goes_on = "Redis answers" if is_away(error) else "that is mended"
            logger.warning("%s stopped: %s. It goes on as soon as %s", self.what, keeper.explained(error), goes_on)
        self._said = repr(error)

    def lasts(self, keeper: Reaching | None) -> bool:
        """Whether Redis has not answered the keeper since the last failure, or refused something just now."""
        return keeper is not None and (not keeper.answered_since(self._since) or monotonic() < self._until)

    def ends(self) -> None:
        """Be told that Redis has done again what it failed to do."""
        self._said = ""
