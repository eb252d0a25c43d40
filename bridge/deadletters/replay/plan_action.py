"""The interface of a plan's action, which the plan runner drives batch by batch; the reasons why a plan leaves a
delivery out; and the actions that send nothing: discard letters, which the ledger notes too, or archive them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from bridge.deadletters.db import inflight_delivery_rows, letter_payload, letter_rows, plan_counts, plan_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.inflight_delivery_rows import DeliveryElsewhere
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_counts import DeadDelivery
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState
from bridge.deadletters.model.stored_letter import DISCARDABLE, LetterIdentity, LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.formats.delivery_identity import Origin
from bridge.ledger import Fate


def find_plan_makers(connection: Connection, letters: Iterable[LetterStanding]) -> Mapping[int, str]:
    """Return the makers of the plans that have non-open letters, by plan id."""
    ids = {
        letter.plan_id for letter in letters if letter.status is not LetterStatus.OPEN and letter.plan_id is not None
    }
    return plan_rows.read_plan_makers(connection, ids)


def explain_lateness(letter: LetterStanding, by: Mapping[int, str]) -> str:
    """Return why a letter that is not open cannot be taken (pure).

    Parameters:
        by: the makers of plans by id (`find_plan_makers`).
    """
    said = "it is replaying already" if letter.status is LetterStatus.REPLAYING else f"it is {letter.status} by now"
    if letter.plan_id is None:
        return said
    who = f" of {by[letter.plan_id]}" if letter.plan_id in by else ""
    return f"{said}, by plan {letter.plan_id}{who}"


class PlanConflicts:
    """The conflicts of a plan, in a transaction in which no other plan claims (`lock_claims`).

    Parameters:
        elsewhere: by place, the deliveries that other plans have in flight.
        letters: by digest, the letters of deliveries that are sent as no letter's own.
    """

    def __init__(self, elsewhere: Mapping[str, DeliveryElsewhere], letters: Mapping[bytes, DeadDelivery]) -> None:
        self._elsewhere, self._letters = elsewhere, letters

    @classmethod
    def find_conflicts(
        cls, connection: Connection, plan_id: int, own: Iterable[Origin] = (), others: Iterable[Origin] = ()
    ) -> "PlanConflicts":
        """Return the conflicts of deliveries.

        Parameters:
            own: deliveries that are sent as their letters.
            others: deliveries that are sent as no letter's own.
        """
        own, others = [*own], [*others]
        found = inflight_delivery_rows.find_deliveries_elsewhere(
            connection, plan_id, [each.identity for each in (*own, *others)]
        )
        return cls(
            found,
            plan_counts.find_letters_by_digest(
                connection, [LetterIdentity.for_delivery(delivery).digest for delivery in others]
            )
            if others
            else {},
        )

    def of_own(self, delivery: Origin, died: int) -> str:
        """Return why a letter's own delivery is left out; empty if it is sent (pure).

        Parameters:
            died: its number when it died last.
        """
        other = self._elsewhere.get(delivery.identity)
        return "" if other is None or other.before(died) else _explain_in_flight(other)

    def of_other(self, delivery: Origin) -> str:
        """Return why a delivery that is no letter's own is left out; empty if it is sent (pure)."""
        if (other := self._elsewhere.get(delivery.identity)) is not None:
            return _explain_in_flight(other)
        letter = self._letters.get(LetterIdentity.for_delivery(delivery).digest)
        return (
            "" if letter is None or letter.status is not LetterStatus.REPLAYING else f"letter {letter.id} is replaying"
        )

    def letter(self, delivery: Origin) -> DeadDelivery | None:
        """Return the open letter of such a delivery; `None` if it has none (pure)."""
        letter = self._letters.get(LetterIdentity.for_delivery(delivery).digest)
        return letter if letter is not None and letter.status is LetterStatus.OPEN else None


def _explain_in_flight(other: DeliveryElsewhere) -> str:
    return f"plan {other.plan_id} has it in flight"


T = TypeVar("T")

#: Most bytes of values in memory.
BYTES_AT_ONCE: Final = 16_000_000
#: Renews the plan's lease; raises PlanTakenOver if another process has the plan. It is called before each part of a
#: batch is sent, and while it is prepared.
Live = Callable[[], None]


class ClaimedDelivery(NamedTuple):
    """A claimed delivery, which is about to be sent.

    Attributes:
        spot: the least offset of its record, if it was sent; `None`: nothing is sent for it.
    """

    item: PlanItem
    spot: LogPosition | None


class TakenDeliveries(NamedTuple):
    """The result of a claim.

    Attributes:
        claimed: the claimed deliveries.
        skipped: by position, the reason for skipping.
    """

    claimed: Sequence[ClaimedDelivery]
    skipped: Mapping[int, str]


class ActionEnd(NamedTuple):
    """The immediate end of a delivery, with its reason."""

    state: PlanItemState
    why: str = ""


@dataclass(frozen=True)
class ActionResult:
    """The certain results of an action; a claimed delivery without a result is uncertain.

    Attributes:
        ends: by position.
        why: why the others are uncertain, if known.
    """

    sent: Sequence[SentRecord] = ()
    ends: Mapping[int, ActionEnd] = field(default_factory=dict)
    why: str = ""


def slice_by_size(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield parts of some items, in their order, whose values fit in memory."""
    some: list[T] = []
    taken = 0
    for item in items:
        some.append(item)
        taken += max(0, size(item))
        if taken >= BYTES_AT_ONCE:
            yield some
            some, taken = [], 0
    if some:
        yield some


class PlanAction(Protocol):
    """An action of plans. A process may die between any two of its steps, and another resumes."""

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Claim letters, in the transaction of the claim, so that no other plan takes them."""

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Find what was done by an earlier try, of this process or a dead one.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
        """

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Do the action, outside of a transaction, and wait until it is certain.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
            PlanTakenOver: another process has resumed the plan, with the unsent part.
        """

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Set the status of the letters, in the transaction that notes the results."""


class ArchiveAction:
    """The action of a plan that archives letters: only their status changes."""

    #: The statuses that are changed, and the new one: all but replaying letters may be archived.
    before: Sequence[LetterStatus] = (LetterStatus.OPEN, LetterStatus.RESOLVED, LetterStatus.DISCARDED)
    after = LetterStatus.ARCHIVED

    def __init__(self, plan: BulkPlan) -> None:
        self._plan = plan

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Change the status of letters that have an expected one and are unchanged; skip the others."""
        found = letter_payload.read_letter_standings(connection, [item.letter_id or 0 for item in waiting], lock=True)
        by = find_plan_makers(connection, found.values())
        in_flight = self._find_in_flight(connection, found.values())
        skipped: dict[int, str] = {}
        claimed: list[ClaimedDelivery] = []
        for item in waiting:
            letter = found.get(item.letter_id or 0)
            if letter is None:
                skipped[item.position] = "the letter is gone"
            elif letter.status not in self.before:
                skipped[item.position] = explain_lateness(letter, by)
            elif letter.failures != item.failures:
                skipped[item.position] = "it has died again since the plan was made"
            elif letter.id in in_flight:
                skipped[item.position] = in_flight[letter.id]
            else:
                claimed.append(ClaimedDelivery(item, None))
        ids = [each.item.letter_id for each in claimed if each.item.letter_id]
        for status in self.before:
            letter_rows.change_letter_status(connection, ids, status, self.after, at, self._plan.id)
        return TakenDeliveries(claimed, skipped)

    def _find_in_flight(self, connection: Connection, found: Iterable[LetterStanding]) -> Mapping[int, str]:
        """Return, by id, why letters are left out whose delivery is in flight: none, for only their status changes."""
        return {}

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Return nothing done: to do it again is harmless."""
        return ActionResult()

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Return that nothing is left to do."""
        return ActionResult(ends={each.item.position: ActionEnd(PlanItemState.DONE) for each in claimed})

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Do nothing."""


class DiscardAction(ArchiveAction):
    """The action of a plan that discards letters: first the ledger notes it, then the database.

    Before that the letter is claimed, so that no replay takes it.
    """

    before = DISCARDABLE
    after = LetterStatus.DISCARDED

    def __init__(self, database: Database, plan: BulkPlan, fates: LedgerFates) -> None:
        super().__init__(plan)
        self._database, self._fates = database, fates

    def _find_in_flight(self, connection: Connection, found: Iterable[LetterStanding]) -> Mapping[int, str]:
        """Return why archived letters are left out that a redrive has sent: their key is freed when that has ended."""
        archived = [letter for letter in found if letter.is_ours and letter.status is LetterStatus.ARCHIVED]
        ahead = PlanConflicts.find_conflicts(connection, self._plan.id, [letter.delivery for letter in archived])
        whys = {letter.id: ahead.of_own(letter.delivery, letter.number) for letter in archived}
        return {id_: why for id_, why in whys.items() if why}

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Note the discards in the ledger; a delivery that is done stays done."""
        with self._database.reading() as connection:
            letters = letter_payload.read_letter_standings(connection, [each.item.letter_id or 0 for each in claimed])
        ours = [letter for letter in letters.values() if letter.is_ours]
        fates = self._fates.discard([letter.delivery for letter in ours])
        # A delivery that runs again although it was done is discarded too.
        done = {letter.id for letter, fate in zip(ours, fates, strict=True) if fate is Fate.DONE and not letter.again}
        was_done, discarded = ActionEnd(PlanItemState.DONE, "its work was done"), ActionEnd(PlanItemState.DISCARDED)
        return ActionResult(
            ends={each.item.position: was_done if each.item.letter_id in done else discarded for each in claimed}
        )

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Resolve the letters whose delivery turned out to be done."""
        done = [each.item.letter_id for each in claimed if acted.ends[each.item.position].state is PlanItemState.DONE]
        letter_rows.change_letter_status(
            connection, filter(None, done), LetterStatus.DISCARDED, LetterStatus.RESOLVED, at
        )
