"""The recent cost of deliveries to each handler, as workers measure it, for the size of batches only.

It is shared by the group, so a bridge that starts knows what the others have measured.
"""

from collections.abc import Collection, Mapping
from math import inf, isfinite, sqrt
from typing import Any, Final, NamedTuple

from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import NOTE_HANDLER_COSTS
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

#: Seconds of work after which earlier measurements count a third.
FADES_IN: Final = 2.0
#: Seconds that the cost of an idle handler is kept.
KEPT_FOR: Final = 7 * 86_400
#: A greater number of deliveries side by side is not believed.
MOST_AT_ONCE: Final = 1_000
#: One delivery, allowing for the rounding of faded sums.
_ONE: Final = 0.999


class DeliveryCost(NamedTuple):
    """The cost of some deliveries in a worker's process.

    Attributes:
        deliveries: how many.
        seconds: the total time of their runs; of those that ran side by side, divided by how many ran at once.
        squares: the sum of the squares of the times.
        beside: seconds that their tasks took besides: checking whether they are settled, resending what failed.
        once: those of `beside` that a task takes once, however many deliveries it has: the look whether they are
            settled, their marks.
    """

    deliveries: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    beside: float = 0.0
    once: float = 0.0

    @property
    def mean(self) -> float:
        """Return the seconds that one delivery takes."""
        return (self.seconds + self.beside) / self.deliveries if self.deliveries else 0.0

    @property
    def one_more(self) -> float:
        """Return the seconds that a task takes longer with one more delivery."""
        return max(0.0, self.seconds + self.beside - self.once) / self.deliveries if self.deliveries else 0.0

    @property
    def spread(self) -> float:
        """Return the standard deviation of the time of one delivery."""
        if not self.deliveries:
            return 0.0
        return sqrt(max(0.0, self.squares / self.deliveries - (self.seconds / self.deliveries) ** 2))


class KnownCost(NamedTuple):
    """The known cost of a handler.

    Attributes:
        cost: `None` until its first delivery has ended.
        lost: seconds since a process or worker was last lost with one of its messages; `None` if unknown.
        slow: seconds since one of its runs took longer than the rest of a batch waits
            (`tasks.worker.delivery_cost.SLOW`).
        at_once: how many deliveries a process runs side by side, as the last one reported that finds it out.
    """

    cost: DeliveryCost | None = None
    lost: float | None = None
    slow: float | None = None
    at_once: int = 1


class HandlerCosts:
    """The costs of the group's handlers. Each method raises LedgerUnavailable when Redis is unavailable."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def report(
        self, handler: str, cost: DeliveryCost, *, lost: bool = False, slow: bool = False, at_once: int = 0
    ) -> None:
        """Report what deliveries took, whether the previous process was lost, and whether a run was slow.

        Parameters:
            at_once: how many run side by side; 0 changes nothing.
        """
        self._note({handler: (*cost, int(lost), int(slow), at_once)})

    def report_all(self, costs: Mapping[str, DeliveryCost], at_once: Mapping[str, int]) -> None:
        """Report what the deliveries of each handler took, in one step.

        Parameters:
            at_once: how many run side by side, by handler; one that is missing is unchanged.
        """
        if costs:
            self._note({handler: (*cost, 0, 0, at_once.get(handler, 0)) for handler, cost in costs.items()})

    def _note(self, reports: Mapping[str, tuple[float, ...]]) -> None:
        keys, args = [self._key(handler) for handler in reports], [each for row in reports.values() for each in row]
        self._ledger.run("note how long deliveries take", NOTE_HANDLER_COSTS, keys, (KEPT_FOR, FADES_IN, *args))

    def read_costs(self, handlers: Collection[str]) -> dict[str, KnownCost]:
        """Return the known cost of each handler, in one round trip."""
        with self._ledger.asking("read how long deliveries take") as pipe:
            pipe.time()
            for handler in handlers:
                pipe.hmget(self._key(handler), [*DeliveryCost._fields, "lost", "slow", "at_once"])
            clock, *rows = pipe.execute(raise_on_error=False)
            now, _ = raise_error_answer(clock)
        return {handler: _read_cost(row, now) for handler, row in zip(handlers, rows, strict=True)}

    def _key(self, handler: str) -> str:
        return ledger_key(self._ledger.cluster, self._ledger.group, "times", handler)


def _read_cost(row: Any, now: int) -> KnownCost:
    """Return the cost in a row; impossible values, which another program wrote, count as unknown."""
    if is_wrong_type(row):
        return KnownCost()
    *numbers, lost, slow, at_once = raise_error_answer(row)
    cost = DeliveryCost(*map(_read_number, numbers))
    most = _read_number(at_once)
    return KnownCost(
        cost if _is_possible(cost) else None,
        _seconds_since(lost, now),
        _seconds_since(slow, now),
        int(most) if 1 <= most <= MOST_AT_ONCE else 1,
    )


def _seconds_since(written: bytes | None, now: int) -> float | None:
    """Return the seconds since a time; `None` if it is no time or lies in the future."""
    ago = now - _read_number(written)
    return ago if written is not None and 0 <= ago < inf else None


def _read_number(written: bytes | None) -> float:
    """Return the number in a field: 0 if it is missing, infinite if it is no number."""
    try:
        return float(written or 0)
    except ValueError:
        return inf


def _is_possible(cost: DeliveryCost) -> bool:
    """Return whether deliveries can have this cost: at least one delivery, none longer than costs are kept."""
    if not all(isfinite(each) and each >= 0 for each in cost):
        return False
    most = cost.deliveries * KEPT_FOR
    return cost.deliveries >= _ONE and cost.seconds + cost.beside <= most and cost.squares <= most * KEPT_FOR
