"""Groups of dead letters, each one thing to mend: listed, and marked as fixed in a version of the handlers' code."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bridge.deadletters.filters import EVERYTHING, Filter
from bridge.deadletters.growing import Growth, Rate
from bridge.deadletters.shown import time
from bridge.deadletters.store.database import Database


class Order(StrEnum):
    """By what groups are listed."""

    NEED = "need"
    """What needs a person first: what grows, what failed again though it was fixed, what has most open letters."""
    NEWEST = "newest"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Grouped:
    """A group as it stands.

    Attributes:
        place: what raised it: `orders/bank.py:pay`.
        statuses: how many of its letters have each status, without what is 0.
        first_at, last_at: of its failures, ms since the epoch, as all times here.
        growth: `None`: it does not grow.
        fixed_in: the version in which a person says that it is mended.
        regressed_at: when it failed in that version all the same.
    """

    id: int
    handler: str
    error_class: str
    place: str
    statuses: dict[str, int]
    reasons: tuple[str, ...]
    topics: tuple[str, ...]
    versions: tuple[str, ...]
    origins: tuple[str, ...]
    first_at: int
    last_at: int
    rate: Rate
    growth: Growth | None
    fixed_in: str | None
    fixed_at: int | None
    fixed_by: str | None
    fixed_plan: int | None
    regressed_at: int | None

    @property
    def count(self) -> int:
        """How many letters it has, of any status."""
        return sum(self.statuses.values())

    @property
    def open(self) -> int:
        """How many wait for somebody."""
        return self.statuses.get("open", 0)

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "handler": self.handler,
            "error_class": self.error_class,
            "where": self.place,
            "count": self.count,
            "open": self.open,
            "statuses": self.statuses,
            "reasons": list(self.reasons),
            "topics": list(self.topics),
            "versions": list(self.versions),
            "origins": list(self.origins),
            "first_at": time(self.first_at),
            "last_at": time(self.last_at),
            "rate_day": round(self.rate.day, 2),
            "rate_week": round(self.rate.week, 2),
            "growing": self.growth is not None,
            "growing_since": time(self.growth.since) if self.growth else None,
            "fixed_in": self.fixed_in,
            "fixed_at": time(self.fixed_at),
            "fixed_by": self.fixed_by,
            "fixed_plan": self.fixed_plan,
            "regressed_at": time(self.regressed_at),
        }


@dataclass(frozen=True)
class Groups:
    """What is asked of groups. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def all(self, asked: Filter = EVERYTHING, order: Order = Order.NEED) -> list[Grouped]:
        """The groups that have letters of a filter.

        Parameters:
            asked: by handler, topic, exception, reason, version, origin, status, id of the group; since: failed then or
                later.

        Raises:
            FilterFault: it asks for what single letters alone have: ids, text, key, headers, until.
        """
        raise NotImplementedError

    def one(self, id_: int) -> Grouped:
        """A group as it stands.

        Raises:
            NoSuchGroup: there is none of that number.
        """
        raise NotImplementedError

    def fixed(self, id_: int, version: str, by: str) -> Grouped:
        """Note that a group is mended in a version of the handlers' code, and who says so.

        Raises:
            NoSuchGroup: there is none of that number.
        """
        raise NotImplementedError

    def not_fixed(self, id_: int, by: str) -> Grouped:
        """Take that back.

        Raises:
            NoSuchGroup: there is none of that number.
        """
        raise NotImplementedError
