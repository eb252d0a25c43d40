"""Marks that the ledger is to be told of, and that are told again until it has taken them."""

from collections.abc import Iterable

from bridge.ledger import Fate, Ledger, Mark
from bridge.ledger.pages import PAGE


class Marks:
    """What has happened already, whatever the ledger says to it.

    Parameters:
        ledger: `None` where there is no Redis for it: nothing is told.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._untold: list[Mark] = []

    def add(self, marks: Iterable[Mark]) -> None:
        """Note marks, to be told with the next `tell`."""
        if self._ledger is not None:
            self._untold += marks

    def tell(self) -> None:
        """Tell the ledger all that it has not been told.

        Raises:
            LedgerUnavailable: it is told again with the next.
        """
        if self._ledger is None or not self._untold:
            return
        long = [mark for mark in self._untold if mark.fate is Fate.GAP and len(mark.offsets) > PAGE]
        self._ledger.write([mark for mark in self._untold if mark not in long] if long else self._untold)
        for mark in long:
            self._ledger.mark_gap(mark.account, mark.offsets[0], mark.offsets[-1])
        self._untold = []
