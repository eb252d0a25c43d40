"""The interface of a plan's action: the steps that the plan runner takes for each batch of deliveries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bridge.deadletters.db.database import Connection
from bridge.deadletters.db.plan_item_table import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import PlanItemState

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
