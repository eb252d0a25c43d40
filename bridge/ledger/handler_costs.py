"""What deliveries to each handler cost lately, as workers measure it: for the size of batches, and nothing rests on it.

Of a group, whatever its topics: so a bridge that starts, or a second one, knows what the first has seen.
"""

from collections.abc import Collection
from math import inf, isfinite, sqrt
from typing import Any, Final, NamedTuple

from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_scripts import TIMES
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

#: Seconds of work after which what was measured before counts a third.
FADES_IN: Final = 2.0
#: Seconds for which it is known what a handler costs that has nothing to do.
KEPT_FOR: Final = 7 * 86_400
#: One delivery, as near as the sums of fading numbers come to it.
_ONE: Final = 0.999


class DeliveryCost(NamedTuple):
    """What some deliveries took in a worker's process.

    Attributes:
        deliveries: how many.
        seconds: all of them together, each from the decoding of its value to its mark.
        squares: the sum of the squares of what each took.
        beside: seconds that their tasks took besides: looking whether they are settled, sending on what failed.
    """

    deliveries: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    beside: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds that one takes."""
        return (self.seconds + self.beside) / self.deliveries if self.deliveries else 0.0

    @property
    def spread(self) -> float:
        """The standard deviation of what one takes."""
        if not self.deliveries:
            return 0.0
        return sqrt(max(0.0, self.squares / self.deliveries - (self.seconds / self.deliveries) ** 2))


class KnownCost(NamedTuple):
    """What is known of a handler.

    Attributes:
        cost: `None` before the first of its deliveries has ended.
        lost: seconds since a process or a worker was lost with one of its messages last, if it is known.
        slow: seconds since one of its runs took longer than what is left of a batch waits
            (`tasks.worker.delivery_cost.SLOW`).
    """

    cost: DeliveryCost | None = None
    lost: float | None = None
    slow: float | None = None


class HandlerCosts:
    """The times of the ledger's group. Each method raises LedgerUnavailable when Redis is silent."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def report(self, handler: str, cost: DeliveryCost, *, lost: bool = False, slow: bool = False) -> None:
        """Note what deliveries took, whether their process before this one was lost, and whether a run was slow."""
        args = (KEPT_FOR, FADES_IN, *cost, int(lost), int(slow))
        self._ledger.run("note how long deliveries take", TIMES, [self._key(handler)], args)

    def known(self, handlers: Collection[str]) -> dict[str, KnownCost]:
        """Return what is known of each, in one trip."""
        with self._ledger.asking("read how long deliveries take") as pipe:
            pipe.time()
            for handler in handlers:
                pipe.hmget(self._key(handler), [*DeliveryCost._fields, "lost", "slow"])
            clock, *rows = pipe.execute(raise_on_error=False)
            now, _ = raise_error_answer(clock)
        return {handler: _read_cost(row, now) for handler, row in zip(handlers, rows, strict=True)}

    def _key(self, handler: str) -> str:
        return ledger_key(self._ledger.cluster, self._ledger.group, "times", handler)


def _read_cost(row: Any, now: int) -> KnownCost:
    """What a row says; what nobody could have measured is unknown, whoever wrote it."""
    if is_wrong_type(row):
        return KnownCost()
    *numbers, lost, slow = raise_error_answer(row)
    cost = DeliveryCost(*map(_read_number, numbers))
    return KnownCost(cost if _is_possible(cost) else None, _seconds_since(lost, now), _seconds_since(slow, now))


def _seconds_since(written: bytes | None, now: int) -> float | None:
    """Seconds since then; of what is no time, or yet to come, it is not known."""
    ago = now - _read_number(written)
    return ago if written is not None and 0 <= ago < inf else None


def _read_number(written: bytes | None) -> float:
    """What a field says: 0 where there is none, infinite where it is no number."""
    try:
        return float(written or 0)
    except ValueError:
        return inf


def _is_possible(cost: DeliveryCost) -> bool:
    """Whether deliveries could have cost that: a report is of one at least, and none takes longer than all is kept."""
    if not all(isfinite(each) and each >= 0 for each in cost):
        return False
    most = cost.deliveries * KEPT_FOR
    return cost.deliveries >= _ONE and cost.seconds + cost.beside <= most and cost.squares <= most * KEPT_FOR
