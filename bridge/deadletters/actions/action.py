"""What a plan does with its deliveries, in steps that applying.py takes for a batch at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.database import Connection
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.spots import Sent, Spot

#: Shows that who applies a plan lives; raises PlanTakenOver where another has the plan by now. It is called before each
#: part of a batch that is sent, and while that is got together.
Live = Callable[[], None]


class Claimed(NamedTuple):
    """A delivery that is about to be sent.

    Attributes:
        spot: at this offset or behind it lies its record, if it was sent; `None`: nothing is sent for it.
    """

    item: Item
    spot: Spot | None


class Taken(NamedTuple):
    """What a plan takes of the deliveries that it comes to.

    Attributes:
        claimed: what is to be done.
        skipped: by position, why not.
    """

    claimed: Sequence[Claimed]
    skipped: Mapping[int, str]


class End(NamedTuple):
    """How a delivery ended at once, and why."""

    state: ItemState
    why: str = ""


@dataclass(frozen=True)
class Acted:
    """What is certain of what was claimed; what is in neither is not known.

    Attributes:
        ends: by position.
        why: that of others nothing is certain, where that was said.
    """

    sent: Sequence[Sent] = ()
    ends: Mapping[int, End] = field(default_factory=dict)
    why: str = ""


class Action(Protocol):
    """One thing that plans do. A process may die between any two of its steps, and another goes on."""

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """First, in the transaction that claims them: take the letters from whoever else may want them."""

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """Where that may have been done before, by this process or one that died: find what was.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
        """

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Then, in no transaction: do it, and wait until it is certain.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is certain.
            PlanTakenOver: another process goes on with the plan; what was not sent yet is its.
        """

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """At last, in the transaction that notes what was done: give the letters their status."""
