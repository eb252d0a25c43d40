"""A record of a retry or replay topic that is held in memory until it is due, and with what it may travel then."""

from dataclasses import dataclass
from typing import NamedTuple

from bridge.ledger import Account
from bridge.records.message import Delivery
from bridge.records.parked import Parked


class Whose(NamedTuple):
    """What may travel together: the deliveries of one handler and one partition of its source."""

    handler: str
    topic: str
    topic_id: str
    partition: int

    @property
    def account(self) -> Account:
        """Where the fates of the origins are."""
        return Account(*self)


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is in memory."""

    offset: int
    parked: Parked
    size: int

    @property
    def delivery(self) -> Delivery:
        """What is to run again."""
        return self.parked.delivery

    @property
    def origin(self) -> int:
        """The offset at which its message first lay."""
        return self.parked.delivery.message.offset

    @property
    def whose(self) -> Whose:
        """With what it may travel."""
        message = self.delivery.message
        return Whose(self.delivery.handler, message.topic, self.parked.topic_id, message.partition)
