"""What may be handed out now on one partition: what both ways to tell promise, without an order and in lanes."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from bridge.ledger.fates import Fate

Order = Literal["none", "key", "partition"]


class Group(NamedTuple):
    """Deliveries of one handler to hand out together, in ascending order of their offsets."""

    handler: str
    offsets: list[int]


class Doomed(NamedTuple):
    """Deliveries that will not run, as an earlier handler of their messages ended so: mark them `fate`."""

    handler: str
    offsets: list[int]
    fate: Fate


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

    def take(self) -> list[Group]:
        """Return what may be handed out now, and count it as in flight.

        Groups are as large as what has come allows, up to the batch size: nothing waits to fill one.
        """

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[Doomed]:
        """Note how deliveries ended; return deliveries of later handlers that must be marked with the same fate.

        A fate that does not end a delivery changes nothing. Offsets that are not known here are left out.
        """

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they keep their place."""
