"""Workers that share a limit, in a time of their own: the script runs on a real Redis, and nothing waits."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from bridge.ledger.limit_state import LimitedDelivery, LimitLedger, LimitTerms

#: When it begins.
BEGIN = 1_000_000.0


class Start(NamedTuple):
    """A delivery that has started: when, its lane, and how long it waited."""

    at: float
    lane: int
    waited: float


@dataclass
class LimitWorld:
    """What deliveries of lanes ask, and when they start.

    Those that wait come back up to `late` seconds after they were told to, by chance.
    """

    limits: LimitLedger
    name: str
    terms: LimitTerms
    takes: float = 0.01
    late: float = 0.25
    most_running: int = 0
    claims: int = 0
    starts: list[Start] = field(default_factory=list)

    def run(self, arrivals: Iterable[tuple[float, int]], seconds: float) -> list[Start]:
        chance = Random(7)
        asking = [(BEGIN + at, number, lane, at) for number, (at, lane) in enumerate(arrivals)]
        heapq.heapify(asking)
        running: list[tuple[float, LimitedDelivery]] = []
        while asking and asking[0][0] < BEGIN + seconds:
            now = asking[0][0]
            while running and running[0][0] <= now:
                self.limits.release(self.name, self.terms, [heapq.heappop(running)[1]])
            batch: list[tuple[float, int, int, float]] = []
            while asking and asking[0][0] <= now and len(batch) < (1 if self.terms.concurrency else 500):
                batch.append(heapq.heappop(asking))
            deliveries = [LimitedDelivery(lane, f"orders-0-{number}:charge") for _, number, lane, _ in batch]
            self.claims += len(batch)
            waits = self.limits.claim(self.name, self.terms, deliveries, self.takes, now)
            for (_, number, lane, came), delivery, wait in zip(batch, deliveries, waits, strict=True):
                if wait:
                    back = round(now + wait + chance.random() * self.late + 0.05, 1)
                    heapq.heappush(asking, (back, number, lane, came))
                else:
                    self.starts.append(Start(now - BEGIN, lane, now - BEGIN - came))
                    heapq.heappush(running, (now + self.takes, delivery))
            self.most_running = max(self.most_running, len(running))
        return self.starts

    def count(self, begin: float, end: float, lane: int | None = None) -> int:
        """How many started from one second on until another."""
        return sum(begin <= start.at < end and lane in (None, start.lane) for start in self.starts)
