"""The audience: whether somebody listens to task events, as far as publications told.

Redis answers each publication with the number of those that heard it. While that is nobody, events are neither made
nor sent, and one goes out now and then to ask again.
"""

from __future__ import annotations

import math

#: Seconds for which nobody is taken to listen, after a publication that nobody heard.
LOOK_EVERY = 1.0

DISPATCHER = "lossless.transport.task_events:EventDispatcher"


class EventAudience:
    """Who hears one sender's task events; times are of one monotonic clock."""

    def __init__(self) -> None:
        self._absent_until = -math.inf

    @property
    def absent(self) -> bool:
        """Whether nobody heard the last publication."""
        return self._absent_until > -math.inf

    def wants(self, now: float) -> bool:
        """Whether an event is to be sent: somebody listens, or it is time to ask."""
        return now >= self._absent_until

    def is_in_doubt(self, now: float, under_way: bool) -> bool:
        """Whether it makes a difference to ask now: who has come would miss the next event, or what is under way."""
        return self.absent and (under_way or now < self._absent_until)

    def note(self, listeners: int | None, now: float) -> bool:
        """Note how many heard a publication, None: that is not known; return whether somebody has come."""
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
