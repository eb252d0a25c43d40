"""All dead letters in figures."""

from dataclasses import dataclass
from typing import Any

from bridge.deadletters.growing import Growth, Rate
from bridge.deadletters.store.database import Database


@dataclass(frozen=True, slots=True)
class Handled:
    """The letters of one handler and reason, by status, without what is 0."""

    handler: str
    reason: str
    statuses: dict[str, int]


@dataclass(frozen=True, slots=True)
class Stats:
    """All letters as they stand.

    Attributes:
        at: when, ms since the epoch, as all times here.
        statuses: how many letters have each status.
        handled: the same, by handler and reason.
        groups: how many groups have open letters.
        oldest_open: when the open letter failed that failed first; `None`: none is open.
        rate: failures an hour.
        hours: failures in each of the last 24 hours, the latest last, which is not over.
        resolved_after: seconds from its first failure to its end that half of the resolved letters took, and nine in
            ten; of the latest thousand. `None`: none is.
    """

    at: int
    statuses: dict[str, int]
    handled: tuple[Handled, ...]
    groups: int
    oldest_open: int | None
    rate: Rate
    growth: Growth | None
    hours: tuple[int, ...]
    resolved_after: tuple[float, float] | None

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        raise NotImplementedError


@dataclass(frozen=True)
class Totals:
    """What is asked of all letters. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def stats(self) -> Stats:
        """All letters as they stand now, from what is counted with every change."""
        raise NotImplementedError
