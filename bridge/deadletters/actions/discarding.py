"""Plans that send nothing: letters are discarded, which the ledger must know, or archived."""

from collections.abc import Sequence
from typing import Final

from bridge.deadletters.actions.action import Acted, Claimed, End, Live, Taken
from bridge.deadletters.actions.holders import holders, too_late
from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState, Plan
from bridge.deadletters.store import contents, statuses
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Item
from bridge.ledger import Fate

#: What may be archived: all but what is on its way.
ARCHIVED_FROM: Final = (Status.OPEN, Status.RESOLVED, Status.DISCARDED)


class Discarding:
    """What a plan does that gives letters up: the ledger says so, then the database.

    In that order for who asks the ledger: but first the letter is taken from whoever may want to replay it.
    """

    def __init__(self, database: Database, plan: Plan, fates: Fates) -> None:
        self._database, self._plan, self._fates = database, plan, fates

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """Letters that are open are discarded; the others are skipped."""
        return take(connection, self._plan, waiting, (Status.OPEN,), Status.DISCARDED, at)

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """What the ledger was told it may be told again."""
        return Acted()

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Tell the ledger; what it has as done stays done."""
        with self._database.reading() as connection:
            letters = contents.standings(connection, [each.item.letter_id or 0 for each in claimed])
        ours = [letter for letter in letters.values() if letter.is_ours]
        fates = self._fates.discard([letter.delivery for letter in ours])
        # What was asked for though it was done is given up all the same.
        done = {letter.id for letter, fate in zip(ours, fates, strict=True) if fate is Fate.DONE and not letter.again}
        return Acted(ends={each.item.position: _end(each.item.letter_id in done) for each in claimed})

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """What was done all the same is resolved."""
        done = [each.item.letter_id for each in claimed if acted.ends[each.item.position].state is ItemState.DONE]
        statuses.move(connection, filter(None, done), Status.DISCARDED, Status.RESOLVED, at)


class Archiving:
    """What a plan does that puts letters away: their status is another, and nothing else."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """All are archived but what is on its way."""
        return take(connection, self._plan, waiting, ARCHIVED_FROM, Status.ARCHIVED, at)

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """Nothing more is to be done."""
        return Acted()

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Nothing more is to be done."""
        return Acted(ends={each.item.position: End(ItemState.DONE) for each in claimed})

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """Nothing more is to be done."""


def take(
    connection: Connection, plan: Plan, waiting: Sequence[Item], from_: Sequence[Status], to: Status, at: int
) -> Taken:
    """Give letters their new status where they have one of the expected, and are as they were; skip the others."""
    found = contents.standings(connection, [item.letter_id or 0 for item in waiting], lock=True)
    by = holders(connection, found.values())
    skipped: dict[int, str] = {}
    claimed: list[Claimed] = []
    for item in waiting:
        letter = found.get(item.letter_id or 0)
        if letter is None:
            skipped[item.position] = "the letter is gone"
        elif letter.status not in from_:
            skipped[item.position] = too_late(letter, by)
        elif letter.failures != item.failures:
            skipped[item.position] = "it has died again since the plan was made"
        else:
            claimed.append(Claimed(item, None))
    ids = [each.item.letter_id for each in claimed if each.item.letter_id]
    for status in from_:
        statuses.move(connection, ids, status, to, at, plan.id)
    return Taken(claimed, skipped)


def _end(done: bool) -> End:
    return End(ItemState.DONE, "its work was done") if done else End(ItemState.DISCARDED)
