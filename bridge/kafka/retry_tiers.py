"""The retry tiers: how long retry topics hold what is parked, and which tier a wait goes to (pure).

A wait is rounded up to a topic's own, so that a topic becomes due in the order in which it was written.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RetryTier(NamedTuple):
    """Where a wait goes.

    Attributes:
        delay: seconds for which the topic holds it.
        again: it has not waited long enough then: no topic is, and it is parked again.
    """

    delay: int
    again: bool = False


class TierWaits(NamedTuple):
    """Where waits go: to Celery, or to a retry topic.

    Attributes:
        park_after: seconds; shorter waits are Celery's (`kafka_park_after`).
        delays: of the tiers that may be parked into, ascending.
    """

    park_after: float
    delays: tuple[int, ...] = ()

    def tier(self, wait: float) -> RetryTier | None:
        """The tier for a wait; `None` where it is Celery's."""
        return choose_tier(wait, self.delays) if wait >= self.park_after else None

    def real(self, wait: float) -> float:
        """Seconds after which a retry really starts that is to start after `wait`: rounded up to its tiers."""
        if wait < self.park_after or not self.delays:
            return wait
        rounds, rest = divmod(wait, self.delays[-1])
        tier = self.tier(rest)
        return rounds * self.delays[-1] + (rest if tier is None else tier.delay)


def choose_tier(wait: float, delays: Iterable[int]) -> RetryTier | None:
    """The next tier that is long enough; the longest, again and again, for more; `None` where there is none.

    Parameters:
        wait: seconds.
        delays: of the tiers that there are.
    """
    found = sorted(delays)
    if not found:
        return None
    enough = next((delay for delay in found if delay >= wait), None)
    return RetryTier(found[-1], again=True) if enough is None else RetryTier(enough)


def explicit_tiers(delays: Sequence[float] | None, park_after: float) -> tuple[int, ...]:
    """The tiers that a handler's `retry_delays` name: each wait that is parked has one of its own, in whole seconds."""
    return tuple(sorted({math.ceil(delay) for delay in delays or () if delay >= park_after}))


def required_tiers(
    delays: Sequence[float] | None, longest: float, park_after: float, standard: Sequence[int]
) -> tuple[int, ...]:
    """What a handler's source topics need from the start, ascending.

    Parameters:
        delays: its `retry_delays`, if it has any.
        longest: seconds that its policy waits at the most.
        park_after: `kafka_park_after`.
        standard: `kafka_retry_tiers`.
    """
    if delays is not None:
        return explicit_tiers(delays, park_after)
    if longest < park_after:
        return ()
    usable = [delay for delay in standard if delay >= park_after] or list(standard[-1:])
    below = [delay for delay in usable if delay < longest]
    return tuple(below + usable[len(below) : len(below) + 1])


def usable_tiers(delays: Sequence[float] | None, park_after: float, standard: Sequence[int]) -> tuple[int, ...]:
    """The tiers that a delivery of a handler may be parked into, ascending: its own, and those of everybody."""
    usable = [delay for delay in standard if delay >= park_after] or list(standard[-1:])
    return tuple(sorted({*explicit_tiers(delays, park_after), *usable}))
