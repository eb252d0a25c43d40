"""The audience of task events: whether anybody listens, as far as publications told.

Redis answers each publication with its number of receivers. While there are none, events are neither made nor sent,
except for one now and then that asks again.
"""

from __future__ import annotations

import math

#: Seconds without events after a publication that nobody received.
LOOK_EVERY = 1.0

DISPATCHER = "lossless.transport.task_events:EventDispatcher"


class EventAudience:
    """The listeners to one sender's task events; times are of one monotonic clock."""

    def __init__(self) -> None:
        self._absent_until = -math.inf

    @property
    def absent(self) -> bool:
        """Return whether nobody received the last publication."""
        return self._absent_until > -math.inf

    def wants(self, now: float) -> bool:
        """Return whether to send an event: somebody listens, or it is time to ask."""
        return now >= self._absent_until

    def should_ask(self, now: float, in_flight: bool) -> bool:
        """Return whether to ask now: a new listener would miss the next event, or events in flight."""
        return self.absent and (in_flight or now < self._absent_until)

    def note(self, listeners: int | None, now: float) -> bool:
        """Note how many received a publication (None: unknown); return whether a listener has appeared."""
        if listeners is None:
            return False
        came = self.absent and listeners > 0
        self._absent_until = -math.inf if listeners else now + LOOK_EVERY
        return came


def ask_for_listeners() -> None:
    """Have Celery's apps send their events by the dispatcher that asks, where Celery is installed.

    An app with a dispatcher of its own (`events_cls`) keeps it.
    """
    try:
        from celery.app.events import Events
    except ImportError:
        return
    if Events.dispatcher_cls == "celery.events.dispatcher:EventDispatcher":
        Events.dispatcher_cls = DISPATCHER
