"""The outcomes of replayed letters, read from the ledger page by page and written as the letters' status.

The recorder alone notes that a letter died again. A person may reopen letters whose outcome is unknown.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.db import (
    audit_rows,
    inflight_delivery_rows,
    letter_payload,
    letter_rows,
    plan_item_rows,
    plan_rows,
    sql,
)
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.inflight_delivery_rows import OtherDelivery
from bridge.deadletters.db.letter_payload import ReplayingLetter
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import (
    DROPPED_UNREAD,
    FORGOTTEN,
    OutcomeDeduction,
    OutcomeVerdict,
    SentDelivery,
)
from bridge.deadletters.replay.redrive_outcomes import RedriveOutcomes
from bridge.ledger import Fate
from bridge.settings import Settings

#: Letters that are read at once.
OUTCOME_PAGE: Final = 5_000
#: Seconds between two deductions for letters about which the ledger is silent, which cost more.
DEDUCE_EVERY: Final = 10.0
#: The state and the status of a letter by its fate.
ENDS: Final = {
    Fate.DONE: (PlanItemState.DONE, LetterStatus.RESOLVED),
    Fate.DISCARDED: (PlanItemState.DISCARDED, LetterStatus.DISCARDED),
}
_SETTLED: Final = "it was settled, and is neither dead nor parked"
#: The state of a delivery that is no letter's own, by its verdict.
DEDUCED: Final = {
    OutcomeVerdict.DONE: (PlanItemState.DONE, _SETTLED),
    OutcomeVerdict.DISCARDED: (PlanItemState.DISCARDED, ""),
    OutcomeVerdict.GONE: (PlanItemState.UNKNOWN, DROPPED_UNREAD),
    OutcomeVerdict.UNKNOWN: (PlanItemState.UNKNOWN, FORGOTTEN),
}


class ReplayOutcomes:
    """The outcomes of replayed letters."""

    def __init__(self, settings: Settings, database: Database, fates: LedgerFates) -> None:
        self._settings, self._database, self._fates = settings, database, fates
        self._deduced_at = time.monotonic()

    def note_outcomes(self, plan_id: int | None = None) -> int:
        """Note new outcomes; return how many deliveries are still in flight.

        Parameters:
            plan_id: of this plan alone.
        """
        deduces = time.monotonic() - self._deduced_at >= DEDUCE_EVERY
        left = self._letters(plan_id, deduces) + self._others(plan_id, deduces)
        left += RedriveOutcomes(self._settings, self._database, self._fates).note_outcomes(plan_id, deduces=deduces)
        if deduces:
            self._deduced_at = time.monotonic()
        return left

    def _letters(self, plan_id: int | None, deduces: bool) -> int:
        deducing = OutcomeDeduction(self._settings, self._database, self._fates) if deduces else None
        if plan_id is not None:
            return self._letters_of(plan_id, deducing)
        with self._database.reading() as connection:
            ids = letter_payload.find_replaying_plans(connection)
        return sum(self._letters_of(id_, deducing) for id_ in ids)

    def _letters_of(self, plan_id: int, deducing: OutcomeDeduction | None) -> int:
        left = after = 0
        while True:
            with self._database.reading() as connection:
                page = letter_payload.read_replaying_letters(connection, plan_id, after, OUTCOME_PAGE)
            if not page:
                return left
            after = page[-1].id
            # The ledger may prove an unknown outcome later; that is checked less often.
            silent = self._told([letter for letter in page if deducing is not None or not letter.unknown])
            waited_for = [letter for letter in silent if not letter.unknown]
            left += len(waited_for) - (self._deduce(deducing, waited_for) if deducing is not None else 0)

    def _told(self, page: Sequence[ReplayingLetter]) -> list[ReplayingLetter]:
        """Note outcomes from the ledger; return the other letters."""
        fates = self._fates.read_fates([letter.delivery for letter in page])
        # The origin's fate says nothing about a delivery that runs again.
        found = [Fate.OPEN if letter.again else fate for letter, fate in zip(page, fates, strict=True)]
        for fate in ENDS:
            ids = [letter.id for letter, each in zip(page, found, strict=True) if each is fate]
            if ids:
                self._end(ids, *ENDS[fate])
        return [letter for letter, fate in zip(page, found, strict=True) if fate not in ENDS]

    def _deduce(self, deducing: OutcomeDeduction, letters: Sequence[ReplayingLetter]) -> int:
        """Note outcomes deduced from Kafka; return how many."""
        with self._database.reading() as connection:
            standings = letter_payload.read_letter_standings(connection, [letter.id for letter in letters])
        found = deducing.verdicts([*standings.values()])
        done = [id_ for id_, verdict in found.items() if verdict is OutcomeVerdict.DONE]
        gone = [id_ for id_, verdict in found.items() if verdict is OutcomeVerdict.GONE]
        unknown = [id_ for id_, verdict in found.items() if verdict is OutcomeVerdict.UNKNOWN]
        self._end(done, PlanItemState.DONE, LetterStatus.RESOLVED, _SETTLED)
        self._end(gone, PlanItemState.UNKNOWN, LetterStatus.OPEN, DROPPED_UNREAD)
        # Without proof that it did not run, it stays `replaying`, for a person to open (`UnknownOutcomes`).
        self._end(unknown, PlanItemState.UNKNOWN, LetterStatus.REPLAYING, FORGOTTEN)
        return len(done) + len(gone) + len(unknown)

    def _end(self, ids: Sequence[int], state: PlanItemState, status: LetterStatus, why: str = "") -> None:
        if not ids:
            return
        with self._database.writing() as connection:
            at = sql.read_clock(connection)
            # A letter that the recorder has opened meanwhile stays open.
            if status is LetterStatus.REPLAYING:
                moved = letter_rows.lock_letters(connection, ids, status)
            else:
                moved = letter_rows.change_letter_status(connection, ids, LetterStatus.REPLAYING, status, at)
            plan_item_rows.end_items_of_letters(connection, moved, state, at, why)

    def _others(self, plan_id: int | None, deduces: bool) -> int:
        """Note outcomes of deliveries that are no letter's own; return how many are in flight."""
        with self._database.reading() as connection:
            ids = [each for each in plan_rows.find_plans_to_all_handlers(connection) if plan_id in (None, each)]
        return sum(self._others_of(id_, deduces) for id_ in ids)

    def _others_of(self, plan_id: int, deduces: bool) -> int:
        left = after = 0
        deducing = OutcomeDeduction(self._settings, self._database, self._fates) if deduces else None
        while True:
            with self._database.reading() as connection:
                page = inflight_delivery_rows.read_other_deliveries(connection, plan_id, after, OUTCOME_PAGE)
            if not page:
                return left
            after = page[-1].position
            found = self._fates.read_fates([each.delivery for each in page])
            with self._database.writing() as connection:
                silent = self._end_others(connection, page, found)
            left += len(silent) - (self._deduce_others(deducing, silent) if deducing is not None and silent else 0)

    def _deduce_others(self, deducing: OutcomeDeduction, silent: Sequence[OtherDelivery]) -> int:
        """Note outcomes deduced from Kafka; return how many."""
        verdicts = deducing.deduce_outcomes(
            {delivery.position: SentDelivery(delivery.delivery, delivery.where) for delivery in silent}
        )
        with self._database.writing() as connection:
            at = sql.read_clock(connection)
            for verdict, (state, why) in DEDUCED.items():
                over = [delivery for delivery in silent if verdicts.get(delivery.position) is verdict]
                inflight_delivery_rows.end_other_deliveries(connection, over, state, at, why)
        return len(verdicts.keys() & {delivery.position for delivery in silent})

    def _end_others(
        self, connection: Connection, page: Sequence[OtherDelivery], found: Sequence[Fate]
    ) -> list[OtherDelivery]:
        """Note outcomes from the ledger and the database; return the other deliveries."""
        at = sql.read_clock(connection)
        for fate, (state, _) in ENDS.items():
            over = [each for each, its in zip(page, found, strict=True) if its is fate]
            inflight_delivery_rows.end_other_deliveries(connection, over, state, at)
        rest = [each for each, fate in zip(page, found, strict=True) if fate not in ENDS]
        dead = inflight_delivery_rows.find_dead_deliveries(connection, rest)
        inflight_delivery_rows.end_other_deliveries(connection, dead, PlanItemState.DEAD, at)
        return [each for each in rest if each not in dead]


#: Letters that end in one transaction.
REOPEN_PAGE: Final = 1_000


@dataclass(frozen=True)
class UnknownOutcomes:
    """Letters that are `replaying` with an unknown outcome of their plan.

    They may have run, so only proof or a person ends that. Every method raises DeskUnavailable if the database does not
    answer.
    """

    database: Database

    def reopen(self, ids: Sequence[int], plan_id: int | None, why: str, by: str) -> list[int]:
        """Open those of these letters whose outcome is unknown; return their ids.

        Parameters:
            ids: of letters; empty: all of a plan.
            why: for the audit log.
        """
        return self._end(ids, plan_id, why, by, LetterStatus.OPEN)

    def resolve(self, ids: Sequence[int], plan_id: int | None, why: str, by: str) -> list[int]:
        """Resolve those of these letters whose outcome is unknown, because they ran; return their ids.

        The recorder notes it as done in the ledger (fate_reconciliation.py). A new dead letter of one that is recorded
        later opens it.

        Parameters:
            ids, why: as `reopen`.
        """
        return self._end(ids, plan_id, why, by, LetterStatus.RESOLVED)

    def _end(self, ids: Sequence[int], plan_id: int | None, why: str, by: str, status: LetterStatus) -> list[int]:
        ended: list[int] = []
        while True:
            with self.database.writing() as connection:
                found = letter_rows.find_unknown_letters(connection, plan_id, ids or None, REOPEN_PAGE)
                at = sql.read_clock(connection)
                names = letter_rows.name_letters(connection, found)
                moved = letter_rows.change_letter_status(connection, found, LetterStatus.REPLAYING, status, at)
                if status is LetterStatus.RESOLVED:
                    plan_item_rows.end_items_of_letters(
                        connection, moved, PlanItemState.DONE, at, f"it ran, says {by}: {why}"
                    )
                what = "reopen" if status is LetterStatus.OPEN else "resolve"
                for id_ in moved:
                    audit_rows.write_entry(connection, at, by, what, why, letter_id=id_, letter=names[id_])
            ended += moved
            if not moved:
                return ended
