"""The owners of taken messages: their names, which of their messages were begun, and whether a message is still its
owner's. Which owners are dead is decided in message_recovery.py.

A begun task is reported to Redis at once unless there was a report a moment ago, else with others, so a message costs
no round trip of its own.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from kombu.log import get_logger


def sort_fields(fields: set[str]) -> list[str]:
    """Return the fields of an owner's hash, the last taken first; what is no field of ours comes first of all."""
    return sorted(fields, key=lambda field: int(field) if field.isdecimal() else math.inf, reverse=True)


#: Seconds between two reports to Redis.
TELL_EVERY = 0.05


class BegunTasks:
    """The fields of one owner's messages with which a task has begun."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._fields: set[str] = set()
        self._lock = threading.Lock()
        self._is_news = False
        self._told_at = -TELL_EVERY

    def add(self, field: str) -> bool:
        """Note that a task has begun with a message; return whether Redis should be told at once."""
        with self._lock:
            self._fields.add(field)
            was, self._is_news = self._is_news, True
            return not was and self._now() - self._told_at >= TELL_EVERY

    def __contains__(self, field: str) -> bool:
        with self._lock:
            return field in self._fields

    def to_tell(self, held: Iterable[str]) -> str | None:
        """Return the report for Redis, None if nothing is new or the last report was a moment ago.

        Parameters:
            held: the fields of what is held still; the others are forgotten.
        """
        with self._lock:
            if not self._is_news or self._now() - self._told_at < TELL_EVERY:
                return None
            self._fields.intersection_update(held)
            self._is_news, self._told_at = False, self._now()
            return ",".join(sorted(self._fields, key=int))

    def untold(self) -> None:
        """Note that the last report did not reach Redis."""
        self._is_news = True


logger = get_logger("lossless.transport")

#: The property of a message that says when it was taken, as `now` counts.
TAKEN_AT = "taken"

# Where the machine sleeps, time passes for all others.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_host_clock() -> float:
    """Return the seconds of a clock that all processes of this host share, and that runs while it sleeps."""
    return time.clock_gettime(_CLOCK)


def is_given_away(app: Any, delivery_tag: str) -> bool:
    """Return whether a taken message was redelivered to others, because this worker seemed dead.

    False if that is unknown: Redis does not answer, it was wiped, or the transport is another one.

    Parameters:
        app: the Celery app whose broker it came from.
    """
    try:
        with app.connection_or_acquire() as connection:
            channel = connection.default_channel
            return hasattr(channel, "was_given_away") and bool(channel.was_given_away(delivery_tag))
    except Exception as error:  # kombu's, redis-py's, the pool's: whatever it is, the work goes on
        logger.debug("unknown whether message %s is still held: %r", delivery_tag, error)
        return False


def make_owner(dead_after: float) -> str:
    """Return a unique owner name, which also holds the seconds without a heartbeat after which the owner is dead.

    Others that watch it may have another `dead_after`: the setting is changed one worker after the other. To
    versions that do not read it, it is a name like any other.
    """
    return f"{uuid.uuid4().hex}:{dead_after:g}"


def read_patience(owner: str) -> float | None:
    """Return the seconds without a heartbeat in an owner's name, None if it holds none (that make sense)."""
    try:
        seconds = float(owner.partition(":")[2])
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
