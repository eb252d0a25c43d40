"""What may be handed out now where no order is asked for: everything that waits (pure)."""

from collections import deque
from collections.abc import Iterable, Sequence
from types import MappingProxyType

from bridge.ledger.fates import Fate
from bridge.partitions.turns import Doomed, Group, LongestLane, Portion, Portions


class Unordered:
    """The waiting messages of one handler, none of which waits for another (bridge.partitions.turns.Turns).

    Parameters:
        batch: the most deliveries in a group.
    """

    def __init__(self, handler: str, batch: int) -> None:
        self.handlers = (handler,)
        self._batch = batch
        self._waiting: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""
        return len(self._waiting)

    def longest_lane(self) -> LongestLane | None:
        """Return `None`: there are no keys here."""
        return None

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[Doomed]:
        """Take in what is open."""
        if fates is not None and any(fates[0]):
            offsets = [offset for offset, fate in zip(offsets, fates[0], strict=True) if fate == Fate.OPEN]
        self._waiting.extend(offsets)
        return []

    @property
    def ready(self) -> int:
        """All of them."""
        return len(self._waiting)

    def take(self, portions: Portions = MappingProxyType({})) -> list[Group]:
        """All that waits, as groups up to the batch size, as far as there is room."""
        handler = self.handlers[0]
        portion = portions.get(handler) or Portion(self._batch, self._batch)
        groups = []
        while self._waiting and not portion.spent:
            portion.spend()
            size = min(len(self._waiting), portion.size)
            # Sorted, because what was given back stands before what came earlier.
            groups.append(Group(handler, sorted(self._waiting.popleft() for _ in range(size)), portion.why))
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[Doomed]:
        """Nothing waits for what was handed out."""
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they go out first."""
        self._waiting.extendleft(reversed(offsets))
