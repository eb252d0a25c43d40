"""The actions that send nothing: discard letters, which the ledger notes too, or archive them."""

from collections.abc import Sequence
from typing import Final

from bridge.deadletters.db import letter_payload, letter_table
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.plan_item_table import PlanItem
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_action import (
    ActionEnd,
    ActionResult,
    ClaimedDelivery,
    Live,
    TakenDeliveries,
)
from bridge.deadletters.replay.plan_conflicts import explain_lateness, find_plan_makers
from bridge.ledger import Fate

#: The statuses that may be archived: all but replaying.
ARCHIVED_FROM: Final = (LetterStatus.OPEN, LetterStatus.RESOLVED, LetterStatus.DISCARDED)


class DiscardAction:
    """The action of a plan that discards letters: first the ledger notes it, then the database.

    Before that the letter is claimed, so that no replay takes it.
    """

    def __init__(self, database: Database, plan: BulkPlan, fates: LedgerFates) -> None:
        self._database, self._plan, self._fates = database, plan, fates

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Discard the open letters, and skip the others."""
        return take_letters(connection, self._plan, waiting, (LetterStatus.OPEN,), LetterStatus.DISCARDED, at)

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Return nothing done: telling the ledger again is harmless."""
        return ActionResult()

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Note the discards in the ledger; a delivery that is done stays done."""
        with self._database.reading() as connection:
            letters = letter_payload.read_letter_standings(connection, [each.item.letter_id or 0 for each in claimed])
        ours = [letter for letter in letters.values() if letter.is_ours]
        fates = self._fates.discard([letter.delivery for letter in ours])
        # A delivery that runs again although it was done is discarded too.
        done = {letter.id for letter, fate in zip(ours, fates, strict=True) if fate is Fate.DONE and not letter.again}
        return ActionResult(ends={each.item.position: _build_end(each.item.letter_id in done) for each in claimed})

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Resolve the letters whose delivery turned out to be done."""
        done = [each.item.letter_id for each in claimed if acted.ends[each.item.position].state is PlanItemState.DONE]
        letter_table.change_letter_status(
            connection, filter(None, done), LetterStatus.DISCARDED, LetterStatus.RESOLVED, at
        )


class ArchiveAction:
    """The action of a plan that archives letters: only their status changes."""

    def __init__(self, plan: BulkPlan) -> None:
        self._plan = plan

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Archive all letters that are not replaying."""
        return take_letters(connection, self._plan, waiting, ARCHIVED_FROM, LetterStatus.ARCHIVED, at)

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Return that nothing is left to do."""
        return ActionResult()

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Return that nothing is left to do."""
        return ActionResult(ends={each.item.position: ActionEnd(PlanItemState.DONE) for each in claimed})

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Do nothing."""


def take_letters(
    connection: Connection,
    plan: BulkPlan,
    waiting: Sequence[PlanItem],
    from_: Sequence[LetterStatus],
    to: LetterStatus,
    at: int,
) -> TakenDeliveries:
    """Change the status of letters that have an expected one and are unchanged; skip the others."""
    found = letter_payload.read_letter_standings(connection, [item.letter_id or 0 for item in waiting], lock=True)
    by = find_plan_makers(connection, found.values())
    skipped: dict[int, str] = {}
    claimed: list[ClaimedDelivery] = []
    for item in waiting:
        letter = found.get(item.letter_id or 0)
        if letter is None:
            skipped[item.position] = "the letter is gone"
        elif letter.status not in from_:
            skipped[item.position] = explain_lateness(letter, by)
        elif letter.failures != item.failures:
            skipped[item.position] = "it has died again since the plan was made"
        else:
            claimed.append(ClaimedDelivery(item, None))
    ids = [each.item.letter_id for each in claimed if each.item.letter_id]
    for status in from_:
        letter_table.change_letter_status(connection, ids, status, to, at, plan.id)
    return TakenDeliveries(claimed, skipped)


def _build_end(done: bool) -> ActionEnd:
    return ActionEnd(PlanItemState.DONE, "its work was done") if done else ActionEnd(PlanItemState.DISCARDED)
