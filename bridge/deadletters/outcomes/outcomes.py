"""How what was sent back ends: read off the ledger, page by page, and given to the letters as their status.

That a letter died again is not said here: the recorder does, in the transaction that writes the new failure. Whoever
waits follows, and the recorder does: two who find the same are one.
"""

import time
from collections.abc import Sequence
from typing import Final

from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.outcomes.deducing import Deducing, Sent
from bridge.deadletters.outcomes.redriven import Ending
from bridge.deadletters.outcomes.verdict import Verdict
from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store import clock, contents, items, plans, statuses
from bridge.deadletters.store.contents import OnItsWay
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Other
from bridge.ledger import Fate
from bridge.settings import Settings

#: Letters that are asked for at once.
PAGE: Final = 5_000
#: Seconds between two looks at those of which the ledger says nothing: they cost more.
DEDUCE_EVERY: Final = 10.0
#: How a letter ends by its fate, with the status that it has then.
ENDS: Final = {
    Fate.DONE: (ItemState.DONE, Status.RESOLVED),
    Fate.DISCARDED: (ItemState.DISCARDED, Status.DISCARDED),
}
_GONE: Final = "Kafka dropped it from the replay topic before a bridge had read it: it did not run"
_UNKNOWN: Final = "what became of it is not known: neither Redis nor Kafka says whether it ran"
_SETTLED: Final = "it was settled, and is neither dead nor parked"
#: How a delivery ended that is no letter's own, by what was deduced of it.
DEDUCED: Final = {
    Verdict.DONE: (ItemState.DONE, _SETTLED),
    Verdict.DISCARDED: (ItemState.DISCARDED, ""),
    Verdict.GONE: (ItemState.UNKNOWN, _GONE),
    Verdict.UNKNOWN: (ItemState.UNKNOWN, _UNKNOWN),
}


class Outcomes:
    """Follows what was sent back."""

    def __init__(self, settings: Settings, database: Database, fates: Fates) -> None:
        self._settings, self._database, self._fates = settings, database, fates
        self._deduced_at = time.monotonic()

    def look(self, plan_id: int | None = None) -> int:
        """Take in all that has ended since; return how many deliveries are still under way.

        Parameters:
            plan_id: of this plan alone.

        Raises:
            DeskUnavailable, LedgerUnavailable, KafkaUnavailable: nothing more is known.
        """
        deduces = time.monotonic() - self._deduced_at >= DEDUCE_EVERY
        left = self._letters(plan_id, deduces) + self._others(plan_id, deduces)
        left += Ending(self._settings, self._database, self._fates).look(plan_id, deduces=deduces)
        if deduces:
            self._deduced_at = time.monotonic()
        return left

    def _letters(self, plan_id: int | None, deduces: bool) -> int:
        deducing = Deducing(self._settings, self._database, self._fates) if deduces else None
        if plan_id is not None:
            return self._letters_of(plan_id, deducing)
        with self._database.reading() as connection:
            ids = contents.sent_by(connection)
        return sum(self._letters_of(id_, deducing) for id_ in ids)

    def _letters_of(self, plan_id: int, deducing: Deducing | None) -> int:
        left = after = 0
        while True:
            with self._database.reading() as connection:
                page = contents.replaying(connection, plan_id, after, PAGE)
            if not page:
                return left
            after = page[-1].id
            # The ledger may prove later how one ended whose end was not known; that is looked for more seldom.
            silent = self._told([letter for letter in page if deducing is not None or not letter.unknown])
            waited_for = [letter for letter in silent if not letter.unknown]
            left += len(waited_for) - (self._deduce(deducing, waited_for) if deducing is not None else 0)

    def _told(self, page: Sequence[OnItsWay]) -> list[OnItsWay]:
        """Take in what the ledger tells; return the others."""
        fates = self._fates.of([letter.delivery for letter in page])
        # Of what runs though it was done, its origin's fate tells nothing.
        found = [Fate.OPEN if letter.again else fate for letter, fate in zip(page, fates, strict=True)]
        for fate in ENDS:
            ids = [letter.id for letter, each in zip(page, found, strict=True) if each is fate]
            if ids:
                self._end(ids, *ENDS[fate])
        return [letter for letter, fate in zip(page, found, strict=True) if fate not in ENDS]

    def _deduce(self, deducing: Deducing, letters: Sequence[OnItsWay]) -> int:
        """Take in what Kafka tells where the ledger is silent; return how many ended so."""
        with self._database.reading() as connection:
            standings = contents.standings(connection, [letter.id for letter in letters])
        found = deducing.verdicts([*standings.values()])
        done = [id_ for id_, verdict in found.items() if verdict is Verdict.DONE]
        gone = [id_ for id_, verdict in found.items() if verdict is Verdict.GONE]
        unknown = [id_ for id_, verdict in found.items() if verdict is Verdict.UNKNOWN]
        self._end(done, ItemState.DONE, Status.RESOLVED, _SETTLED)
        self._end(gone, ItemState.UNKNOWN, Status.OPEN, _GONE)
        # Without proof that it did not run, it stays `replaying`: a person opens it (UnknownEnds).
        self._end(unknown, ItemState.UNKNOWN, Status.REPLAYING, _UNKNOWN)
        return len(done) + len(gone) + len(unknown)

    def _end(self, ids: Sequence[int], state: ItemState, status: Status, why: str = "") -> None:
        if not ids:
            return
        with self._database.writing() as connection:
            at = clock.now(connection)
            # What the recorder has opened meanwhile stays open.
            if status is Status.REPLAYING:
                moved = statuses.locked(connection, ids, status)
            else:
                moved = statuses.move(connection, ids, Status.REPLAYING, status, at)
            items.ended(connection, moved, state, at, why)

    def _others(self, plan_id: int | None, deduces: bool) -> int:
        """Deliveries that were no letters themselves; return how many are under way."""
        with self._database.reading() as connection:
            ids = [each for each in plans.to_all_handlers(connection) if plan_id in (None, each)]
        return sum(self._others_of(each, deduces) for each in ids)

    def _others_of(self, plan_id: int, deduces: bool) -> int:
        left = after = 0
        deducing = Deducing(self._settings, self._database, self._fates) if deduces else None
        while True:
            with self._database.reading() as connection:
                page = items.others(connection, plan_id, after, PAGE)
            if not page:
                return left
            after = page[-1].position
            found = self._fates.of([each.delivery for each in page])
            with self._database.writing() as connection:
                silent = self._end_others(connection, page, found)
            left += len(silent) - (self._deduce_others(deducing, silent) if deducing is not None and silent else 0)

    def _deduce_others(self, deducing: Deducing, silent: Sequence[Other]) -> int:
        """Take in what Kafka tells where the ledger is silent; return how many ended so."""
        verdicts = deducing.of({each.position: Sent(each.delivery, each.where) for each in silent})
        with self._database.writing() as connection:
            at = clock.now(connection)
            for verdict, (state, why) in DEDUCED.items():
                over = [each for each in silent if verdicts.get(each.position) is verdict]
                items.end_others(connection, over, state, at, why)
        return len(verdicts.keys() & {each.position for each in silent})

    def _end_others(self, connection: Connection, page: Sequence[Other], found: Sequence[Fate]) -> list[Other]:
        """Take in what the ledger and the desk tell; return the others."""
        at = clock.now(connection)
        for fate, (state, _) in ENDS.items():
            over = [each for each, its in zip(page, found, strict=True) if its is fate]
            items.end_others(connection, over, state, at)
        rest = [each for each, fate in zip(page, found, strict=True) if fate not in ENDS]
        dead = items.died(connection, rest)
        items.end_others(connection, dead, ItemState.DEAD, at)
        return [each for each in rest if each not in dead]
