"""Which deliveries of a range a redrive sends again, by their fates (pure)."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ledger.fate_rules import Fate


class DeliveryStand(StrEnum):
    """How a delivery stands, as far as the ledger knows."""

    COMING = "open"
    """It was not read yet: it goes out by itself."""
    HANDED = "handed"
    PARKED = "parked"
    DONE = "done"
    DEAD = "dead"
    DISCARDED = "discarded"
    LOST = "unaccounted"
    """It was committed, and its fate is open: nobody will run it."""
    UNKNOWN = "unknown"
    """It was committed, and the ledger knows nothing of it (any more): it may be done."""
    GAP = "gap"
    """No record lies there."""


#: What a redrive sends, and what it sends only where that is asked for: it may run a second time.
SENT: Final = frozenset({DeliveryStand.DEAD, DeliveryStand.LOST})
SENT_AGAIN: Final = frozenset({DeliveryStand.DONE, DeliveryStand.DISCARDED, DeliveryStand.UNKNOWN})
#: What is on its way, and runs by itself.
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
    """What an open fate of one handler on one partition means, by its offset.

    Attributes:
        committed: what lies at it or above is not read yet; `None`: nothing is.
        joined: the first offset that the handler was there for; `None`: it never was.
        lost: of what lies below it the ledger lost the fates.
    """

    committed: int | None
    joined: int | None = None
    lost: int | None = None

    def of_open(self, offset: int, *, noted: bool) -> DeliveryStand:
        """How a delivery stands whose fate is open.

        Parameters:
            noted: whether the ledger has a page for it; one that has expired was there once.
        """
        if self.committed is None or offset >= self.committed:
            return DeliveryStand.COMING
        known = self.joined is not None and offset >= max(self.joined, self.lost or 0)
        return DeliveryStand.LOST if known and noted else DeliveryStand.UNKNOWN


def judge_deliveries(
    ground: OpenFateMeaning, offsets: Sequence[int], fates: bytes, noted: Sequence[range]
) -> Iterator[DeliveryStand]:
    """How each of some deliveries of a handler and a partition stands.

    Parameters:
        offsets: ascending.
        fates: one of each.
        noted: runs of offsets, ascending, that are open and of which the ledger has a page.
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
    """Why a delivery that a plan has is left out when it is come to, by its fate then; empty: it is sent."""
    stand = _BY_FATE.get(fate)
    return "" if stand is None or stand in find_sent_stands(again=again) else f"it is {stand} by now"


def find_sent_stands(*, again: bool) -> frozenset[DeliveryStand]:
    """How a delivery stands that a redrive sends.

    Parameters:
        again: whether what is done, or may be, is to run a second time.
    """
    return SENT | SENT_AGAIN if again else SENT
