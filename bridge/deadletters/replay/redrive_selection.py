"""The deliveries of a range that a redrive sends again, by their fates (pure)."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ledger.fate_rules import Fate


class DeliveryStand(StrEnum):
    """The stand of a delivery, as far as the ledger knows."""

    COMING = "open"
    """It was not read yet, and will be handed off."""
    HANDED = "handed"
    PARKED = "parked"
    DONE = "done"
    DEAD = "dead"
    DISCARDED = "discarded"
    LOST = "unaccounted"
    """It was committed, and its fate is open: it will not run."""
    UNKNOWN = "unknown"
    """It was committed, and the ledger knows nothing of it (any more): it may be done."""
    GAP = "gap"
    """The offset has no record."""


#: The stands that a redrive sends, and those that it sends only on request, because they may run twice.
SENT: Final = frozenset({DeliveryStand.DEAD, DeliveryStand.LOST})
SENT_AGAIN: Final = frozenset({DeliveryStand.DONE, DeliveryStand.DISCARDED, DeliveryStand.UNKNOWN})
#: The stands in flight.
ON_ITS_WAY: Final = frozenset({DeliveryStand.COMING, DeliveryStand.HANDED, DeliveryStand.PARKED})

_BY_FATE: Final = {
    Fate.HANDED: DeliveryStand.HANDED,
    Fate.PARKED: DeliveryStand.PARKED,
    Fate.DONE: DeliveryStand.DONE,
    Fate.DEAD: DeliveryStand.DEAD,
    Fate.DISCARDED: DeliveryStand.DISCARDED,
    Fate.GAP: DeliveryStand.GAP,
}


class OpenFateMeaning(NamedTuple):
    """The meaning of an open fate of one handler on one partition, by its offset.

    Attributes:
        committed: the offset from which on nothing was read yet; `None`: nothing is committed.
        joined: the first offset of the handler; `None`: it was never declared.
        lost: the offset below which the ledger lost the fates.
    """

    committed: int | None
    joined: int | None = None
    lost: int | None = None

    def of_open(self, offset: int, *, noted: bool) -> DeliveryStand:
        """Return the stand of a delivery whose fate is open.

        Parameters:
            noted: whether the ledger has a page for it, which may have expired since.
        """
        if self.committed is None or offset >= self.committed:
            return DeliveryStand.COMING
        known = self.joined is not None and offset >= max(self.joined, self.lost or 0)
        return DeliveryStand.LOST if known and noted else DeliveryStand.UNKNOWN


def judge_deliveries(
    ground: OpenFateMeaning, offsets: Sequence[int], fates: bytes, noted: Sequence[range]
) -> Iterator[DeliveryStand]:
    """Yield the stands of deliveries of a handler and a partition.

    Parameters:
        offsets: ascending.
        fates: one for each offset.
        noted: ascending runs of open offsets for which the ledger has a page.
    """
    runs = iter(noted)
    run = next(runs, range(0))
    for offset, fate in zip(offsets, fates, strict=True):
        if fate != Fate.OPEN:
            yield _BY_FATE[Fate(fate)]
            continue
        while run and run.stop <= offset:
            run = next(runs, range(0))
        yield ground.of_open(offset, noted=offset in run)


def explain_left_out(fate: Fate, *, again: bool) -> str:
    """Return why a delivery of a plan is left out, by its current fate; empty if it is sent."""
    stand = _BY_FATE.get(fate)
    return "" if stand is None or stand in find_sent_stands(again=again) else f"it is {stand} by now"


def find_sent_stands(*, again: bool) -> frozenset[DeliveryStand]:
    """Return the stands that a redrive sends.

    Parameters:
        again: whether deliveries that are or may be done run a second time.
    """
    return SENT | SENT_AGAIN if again else SENT
