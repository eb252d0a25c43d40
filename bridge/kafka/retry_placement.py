"""The place of a wait: Celery or a retry topic, and which of those that a handler may use is long enough (pure).

tasks/execution/retry_schedule.py acts on it: it parks or sends on the deliveries of a batch that run later.

A wait is rounded up to a topic's delay, so that its records become due in the order of writing. `kafka_retry_tiers` of
bridge/settings/setting_defaults.py lists the tiers; topic_names.py names their topics.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RetryTier(NamedTuple):
    """The tier of a wait.

    Attributes:
        delay: seconds for which the topic holds a record.
        again: whether the wait is longer than every tier: it is parked again then.
    """

    delay: int
    again: bool = False


class TierWaits(NamedTuple):
    """The division of waits between Celery and the retry topics.

    Attributes:
        park_after: seconds; Celery holds shorter waits (`kafka_park_after`).
        delays: of the available tiers, ascending.
    """

    park_after: float
    delays: tuple[int, ...] = ()

    def is_parked(self, wait: float) -> bool:
        """Return whether a wait is for a retry topic, if there is one; Celery holds shorter waits."""
        return wait >= self.park_after

    def tier(self, wait: float) -> RetryTier | None:
        """Return the tier of a wait; `None` if Celery holds it."""
        return choose_tier(wait, self.delays) if self.is_parked(wait) else None

    def real(self, wait: float) -> float:
        """Return the seconds after which a retry with this wait really starts: rounded up to the tiers."""
        if not self.is_parked(wait) or not self.delays:
            return wait
        rounds, rest = divmod(wait, self.delays[-1])
        tier = self.tier(rest)
        return rounds * self.delays[-1] + (rest if tier is None else tier.delay)


def choose_tier(wait: float, delays: Iterable[int]) -> RetryTier | None:
    """Return the shortest tier that is long enough, else the longest with `again`; `None` if there is no tier.

    Parameters:
        wait: seconds.
        delays: of the existing tiers.
    """
    found = sorted(delays)
    if not found:
        return None
    enough = next((delay for delay in found if delay >= wait), None)
    return RetryTier(found[-1], again=True) if enough is None else RetryTier(enough)


def explicit_tiers(delays: Sequence[float] | None, park_after: float) -> tuple[int, ...]:
    """Return the tiers of a handler's `retry_delays`: each parked wait has its own, in whole seconds."""
    return tuple(sorted({math.ceil(delay) for delay in delays or () if delay >= park_after}))


def required_tiers(
    delays: Sequence[float] | None, longest: float, park_after: float, standard: Sequence[int]
) -> tuple[int, ...]:
    """Return the tiers that a handler's source topics need from the start, ascending.

    Parameters:
        delays: its `retry_delays`, if it has any.
        longest: the longest wait of its policy, in seconds.
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
    """Return the tiers that a delivery of a handler may be parked in, ascending: its own and the standard ones."""
    usable = [delay for delay in standard if delay >= park_after] or list(standard[-1:])
    return tuple(sorted({*explicit_tiers(delays, park_after), *usable}))
