"""What a partition of a retry topic holds that is due: by whose it is, and what of it travels together (pure)."""

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.partitions.held import Held, Whose
from bridge.partitions.passing import KEPT, KEPT_BYTES
from bridge.partitions.turns import MESSAGE_BYTES, Group, Portion, Portions

#: Deliveries of a group where nobody says how many.
ALONE: Final = Portion(1, 1)


class Ripe:
    """What is due and not handed out, as it became due; it is held by the partition."""

    def __init__(self) -> None:
        self._of: dict[Whose, dict[int, Held]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, held: Held) -> None:
        """One is due."""
        self._of.setdefault(held.whose, {})[held.offset] = held

    @property
    def counts(self) -> dict[str, int]:
        """How many of each handler."""
        found: dict[str, int] = {}
        for whose, some in self._of.items():
            found[whose.handler] = found.get(whose.handler, 0) + len(some)
        return found

    @property
    def since(self) -> float | None:
        """When (Unix time) the first of them was due; `None`: nothing is."""
        due = min((held.parked.due for some in self._of.values() for held in some.values()), default=None)
        return None if due is None else due / 1000

    def take(self, portions: Portions) -> list[tuple[Group, list[Held]]]:
        """What may go out now; another handler's, or partition's, is first the next time."""
        taken = [each for whose in list(self._of) for each in self._take(whose, portions.get(whose.handler, ALONE))]
        whoses = list(self._of)
        self._of = {whose: self._of[whose] for whose in [*whoses[1:], *whoses[:1]]}
        return taken

    def _take(self, whose: Whose, portion: Portion) -> Iterator[tuple[Group, list[Held]]]:
        while whose in self._of and not portion.spent and (some := self._next(whose, portion.size)):
            portion.spend()
            for held in some:
                self._drop(held)
            some.sort(key=lambda held: held.offset)
            yield Group(whose.handler, [held.offset for held in some], portion.why), some

    def _next(self, whose: Whose, most: int) -> list[Held]:
        """The next to travel together: as many as are asked for, and with each what was parked behind it."""
        found: dict[int, Held] = {}
        size = 0
        for held in self._of[whose].values():
            size += held.size
            behind = held.delivery.after is not None and held.delivery.after in found
            if found and (size > MESSAGE_BYTES or (len(found) >= most and not behind)):
                break
            found[held.origin] = held
        return list(found.values())

    def give_back(self, some: Sequence[Held]) -> None:
        """These, of one group, were taken and not handed out: they are first again."""
        if some:
            whose = some[0].whose
            self._of[whose] = {**{held.offset: held for held in some}, **self._of.get(whose, {})}

    def leave_few(self, handler: str, stay: int) -> tuple[int, list[Held]]:
        """Let go of a handler's but for so many, or fewer large ones; return how many stay, and what went."""
        gone: list[Held] = []
        kept = size = 0
        most = KEPT_BYTES * max(1, stay // KEPT)
        for held in [held for whose, some in self._of.items() if whose.handler == handler for held in some.values()]:
            size += held.size
            if kept < stay and (not kept or size <= most):
                kept += 1
            else:
                self._drop(held)
                gone.append(held)
        return kept, gone

    def _drop(self, held: Held) -> None:
        del self._of[held.whose][held.offset]
        if not self._of[held.whose]:
            del self._of[held.whose]
