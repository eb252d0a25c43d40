"""What may be handed out now on one partition: what both ways to tell promise, without an order and in lanes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from bridge.ledger.fates import Fate

#: Bytes of keys, values and headers that one message carries at most, if it carries more than one delivery.
MESSAGE_BYTES: Final = 1_000_000

Order = Literal["none", "key", "partition"]


class Group(NamedTuple):
    """Deliveries of one handler to hand out together, in ascending order of their offsets; and why so many, if nobody
    has said how many.
    """

    handler: str
    offsets: list[int]
    why: str = ""


class Doomed(NamedTuple):
    """Deliveries that will not run, as an earlier handler of their messages ended so: mark them `fate`."""

    handler: str
    offsets: list[int]
    fate: Fate


@dataclass(slots=True)
class Portion:
    """How much of one handler's may be taken now, from all partitions together.

    Attributes:
        size: most deliveries of a group.
        alone: the same for those that no two processes could share, as one runs after another.
        room: how many groups more; `None`: any.
        why: why so many, for whoever looks at the message.
    """

    size: int
    alone: int
    room: int | None = None
    why: str = ""

    @property
    def spent(self) -> bool:
        """Whether nothing more may be taken."""
        return self.room is not None and self.room <= 0

    def spend(self) -> None:
        """A group more is taken."""
        if self.room is not None:
            self.room -= 1


#: By handler.
Portions = Mapping[str, Portion]


class LongestLane(NamedTuple):
    """The key of which most deliveries wait.

    Attributes:
        first: the offset of the first that waits.
        waiting: how many of its deliveries wait.
    """

    key: bytes | None
    first: int
    waiting: int


class Turns(Protocol):
    """The waiting messages of one handler, or of one sequence of handlers, on one partition.

    Handlers that are no sequence are independent of each other: each has turns of its own.
    """

    @property
    def handlers(self) -> Sequence[str]:
        """One handler, or several in the order in which they run for each message."""

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""

    def longest_lane(self) -> LongestLane | None:
        """Return the key of which most deliveries wait; `None` if keys are not kept apart, or nothing of any waits."""

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[Doomed]:
        """Take in messages, in ascending order, as they come from Kafka.

        Parameters:
            fates: for each handler, the ledger's fates of `offsets`, one byte each; `None` means that all are open.
                What has ended is left out, what is handed or parked holds its lane.

        Returns:
            deliveries to mark as dead with others.
        """

    @property
    def ready(self) -> int:
        """Those of them that may go out now, and that several processes could share."""

    def take(self, portions: Portions = MappingProxyType({})) -> list[Group]:
        """Return what may be handed out now, and count it as in flight.

        Groups are as large as what has come allows, up to the batch size: nothing waits to fill one.

        Parameters:
            portions: of handlers of which not all may be taken, or whose batch size was not given.
        """

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[Doomed]:
        """Note how deliveries ended; return deliveries of later handlers that must be marked with the same fate.

        A fate that does not end a delivery changes nothing. Offsets that are not known here are left out.
        """

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they keep their place."""
