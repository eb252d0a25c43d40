"""How much is to be done, queue by queue, for who decides how many workers there are: the rule (pure).

Three states, and each delivery is in one of them: *ready* in the broker, *taken* by a worker and not ended, *due* in
Kafka and not handed off. What waits for its retry, for a gate or for its time is in none: no worker could run it now.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

State = Literal["ready", "taken", "due"]
STATES: Final[tuple[State, ...]] = ("ready", "taken", "due")
#: By queue and handler.
Counts = Mapping[str, Mapping[str, float]]


class Backlog(NamedTuple):
    """What one queue has in one state.

    Attributes:
        deliveries: how many.
        seconds: that one process needs for them; `None`: of some handler it was never measured.
    """

    deliveries: float = 0.0
    seconds: float | None = 0.0


def backlogs(
    queues: Iterable[str], ready: Counts, taken: Counts, due: Counts, costs: Mapping[str, float | None]
) -> dict[tuple[str, State], Backlog]:
    """How much there is.

    Parameters:
        ready, taken, due: deliveries by queue and handler.
        costs: seconds that a delivery takes a process, by handler, as far as they were measured.
    """
    found: dict[State, Counts] = {"ready": ready, "taken": taken, "due": due}
    return {(queue, state): _of(found[state].get(queue, {}), costs) for queue in queues for state in STATES}


def _of(counts: Mapping[str, float], costs: Mapping[str, float | None]) -> Backlog:
    there = {handler: count for handler, count in counts.items() if count}
    each = [(count, costs.get(handler)) for handler, count in there.items()]
    known = [count * cost for count, cost in each if cost is not None]
    return Backlog(sum(there.values()), sum(known) if len(known) == len(each) else None)


def total(said: Iterable[object]) -> Counts:
    """The sum of what several have announced, by queue and handler; what is no count is left out."""
    sums: dict[str, dict[str, float]] = {}
    for each in said:
        for queue, handler, count in _counts(each):
            of_queue = sums.setdefault(queue, {})
            of_queue[handler] = of_queue.get(handler, 0.0) + count
    return sums


def _counts(said: object) -> Iterator[tuple[str, str, float]]:
    for queue, handlers in _items(said):
        for handler, count in _items(handlers):
            if isinstance(count, int | float) and count >= 0:
                yield queue, handler, count


def _items(said: object) -> Iterable[tuple[str, Any]]:
    return said.items() if isinstance(said, Mapping) else ()


def shown(found: Mapping[tuple[str, State], Backlog]) -> dict[str, dict[str, dict[str, float | None]]]:
    """The same as JSON: per queue and state `deliveries` and `seconds`."""
    made: dict[str, dict[str, dict[str, float | None]]] = {}
    for (queue, state), each in found.items():
        seconds = None if each.seconds is None else round(each.seconds, 3)
        made.setdefault(queue, {})[state] = {"deliveries": round(each.deliveries), "seconds": seconds}
    return made
