"""How deliveries of a range stand, and which of them a redrive sends again (pure)."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ledger.fates import Fate


class Stand(StrEnum):
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
SENT: Final = frozenset({Stand.DEAD, Stand.LOST})
SENT_AGAIN: Final = frozenset({Stand.DONE, Stand.DISCARDED, Stand.UNKNOWN})
#: What is on its way, and runs by itself.
ON_ITS_WAY: Final = frozenset({Stand.COMING, Stand.HANDED, Stand.PARKED})

_BY_FATE: Final = {
    Fate.HANDED: Stand.HANDED,
    Fate.PARKED: Stand.PARKED,
    Fate.DONE: Stand.DONE,
    Fate.DEAD: Stand.DEAD,
    Fate.DISCARDED: Stand.DISCARDED,
    Fate.GAP: Stand.GAP,
}


class Ground(NamedTuple):
    """What an open fate of one handler on one partition means, by its offset.

    Attributes:
        committed: what lies at it or above is not read yet; `None`: nothing is.
        joined: the first offset that the handler was there for; `None`: it never was.
        lost: of what lies below it the ledger lost the fates.
    """

    committed: int | None
    joined: int | None = None
    lost: int | None = None

    def of_open(self, offset: int, *, noted: bool) -> Stand:
        """How a delivery stands whose fate is open.

        Parameters:
            noted: whether the ledger has a page for it; one that has expired was there once.
        """
        if self.committed is None or offset >= self.committed:
            return Stand.COMING
        known = self.joined is not None and offset >= max(self.joined, self.lost or 0)
        return Stand.LOST if known and noted else Stand.UNKNOWN


def stands(ground: Ground, offsets: Sequence[int], fates: bytes, noted: Sequence[range]) -> Iterator[Stand]:
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


def left_out(fate: Fate, *, again: bool) -> str:
    """Why a delivery that a plan has is left out when it is come to, by its fate then; empty: it is sent."""
    stand = _BY_FATE.get(fate)
    return "" if stand is None or stand in sent(again=again) else f"it is {stand} by now"


def sent(*, again: bool) -> frozenset[Stand]:
    """How a delivery stands that a redrive sends.

    Parameters:
        again: whether what is done, or may be, is to run a second time.
    """
    return SENT | SENT_AGAIN if again else SENT
