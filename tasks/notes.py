"""Notes of which task carried what, for `bridge find`: kept back, written once a second, and nothing rests on them."""

from dataclasses import dataclass, field
from typing import Final

from bridge.ledger import Account, Ledger
from bridge.ledger.carried import ALONE, Note, note
from tasks.kept_back import KeptBack
from tasks.observing import harmless

#: Seconds for which notes are kept back, so that many go in one trip.
WITHIN: Final = 1.0
#: Notes of a process that are kept back at most; more are dropped.
MOST: Final = 5_000
#: Deliveries alone in their tasks that one note has at most, of a second's: of very many, one by one, the first.
MOST_ALONE: Final = 20


@dataclass(slots=True)
class _Kept:
    notes: list[Note] = field(default_factory=list)
    alone: dict[Account, set[int]] = field(default_factory=dict)


class Notes:
    """The notes of one process."""

    def __init__(self) -> None:
        self._kept = KeptBack[_Kept](WITHIN, _Kept, _write)
        self.flush = self._kept.flush

    @harmless
    def add(self, ledger: Ledger, made: Note) -> None:
        """Keep a note, to be written soon."""

        def put(kept: _Kept) -> None:
            if len(kept.notes) < MOST:
                kept.notes.append(made)

        self._kept.change(ledger, put)

    @harmless
    def add_alone(self, ledger: Ledger, account: Account, offset: int) -> None:
        """Keep that a delivery ended in a task of its own, as long as it is not one of very many."""

        def put(kept: _Kept) -> None:
            found = kept.alone.setdefault(account, set())
            if len(found) < MOST_ALONE:
                found.add(offset)

        self._kept.change(ledger, put)


def _write(ledger: Ledger, kept: _Kept) -> None:
    note(ledger, kept.notes + [Note(ALONE, account, sorted(found)) for account, found in kept.alone.items()])


notes = Notes()
