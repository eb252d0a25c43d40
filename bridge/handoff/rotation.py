"""Which partition is first where there is not room for what all of them have ready (pure)."""

from collections.abc import Iterable

from bridge.partitions.partition import Partition
from bridge.records.place import Place


class Rotation:
    """Who was first is last the next time; who has nothing ready has no turn, and gives none to its neighbour."""

    def __init__(self) -> None:
        self._last: Place = ("", -1)

    def of(self, partitions: Iterable[Partition]) -> list[Partition]:
        """These with something ready, in the order of their turns."""
        some = sorted(
            (each for each in partitions if any(each.ready.values()) or any(each.waiting.values())),
            key=lambda each: each.place,
        )
        start = next((at for at, each in enumerate(some) if each.place > self._last), 0)
        if some:
            self._last = some[start].place
        return [*some[start:], *some[:start]]
