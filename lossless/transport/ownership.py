"""Whether a message that was taken is this worker's still, for whoever has it in hand for long."""

from __future__ import annotations

import time
from typing import Any

from kombu.log import get_logger

logger = get_logger("lossless.transport")

#: The property of a message that says when it was taken, as `now` counts.
TAKEN = "taken"

# Where the machine sleeps, time passes for all others.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds on a clock that all processes of this machine share, and that goes on while it sleeps."""
    return time.clock_gettime(_CLOCK)


def is_given_away(app: Any, delivery_tag: str) -> bool:
    """Whether a taken message was given to others, because this worker seemed to be dead.

    False where that is not known: Redis does not answer, it was wiped, or the transport is another one.

    Parameters:
        app: the Celery app whose broker it came from.
    """
    try:
        with app.connection_or_acquire() as connection:
            channel = connection.default_channel
            return hasattr(channel, "gave_away") and bool(channel.gave_away(delivery_tag))
    except Exception as error:  # kombu's, redis-py's, the pool's: whatever it is, the work goes on
        logger.debug("It is not known whether %s is held: %r", delivery_tag, error)
        return False
