"""The interface of a plan's action: the steps that the plan runner takes for each batch of deliveries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bridge.deadletters.db.database import Connection
from bridge.deadletters.db.plan_item_table import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import PlanItemState

#: Shows that who applies a plan lives; raises PlanTakenOver where another has the plan by now. It is called before each
#: part of a batch that is sent, and while that is got together.
Live = Callable[[], None]


class ClaimedDelivery(NamedTuple):
    """A delivery that is about to be sent.

    Attributes:
        spot: at this offset or behind it lies its record, if it was sent; `None`: nothing is sent for it.
    """

    item: PlanItem
    spot: LogPosition | None


class TakenDeliveries(NamedTuple):
    """What a plan takes of the deliveries that it comes to.

    Attributes:
        claimed: what is to be done.
        skipped: by position, why not.
    """

    claimed: Sequence[ClaimedDelivery]
    skipped: Mapping[int, str]


class ActionEnd(NamedTuple):
    """How a delivery ended at once, and why."""

    state: PlanItemState
    why: str = ""


@dataclass(frozen=True)
class ActionResult:
    """What is certain of what was claimed; what is in neither is not known.

    Attributes:
        ends: by position.
        why: that of others nothing is certain, where that was said.
    """

    sent: Sequence[SentRecord] = ()
    ends: Mapping[int, ActionEnd] = field(default_factory=dict)
    why: str = ""


class PlanAction(Protocol):
    """One thing that plans do. A process may die between any two of its steps, and another goes on."""

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """First, in the transaction that claims them: take the letters from whoever else may want them."""

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Where that may have been done before, by this process or one that died: find what was.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
        """

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Then, in no transaction: do it, and wait until it is certain.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
            PlanTakenOver: another process goes on with the plan; what was not sent yet is its.
        """

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """At last, in the transaction that notes what was done: give the letters their status."""
