"""How much the gates of the Celery broker keep back, in deliveries: a message of a batch has many."""

from typing import Any, Final, NamedTuple

from bridge.handoff.broker import Broker
from bridge.handoff.carriers import offsets_in
from bridge.handoff.messages import headers_in
from lossless.transport.channel import Channel
from lossless.transport.looking import some_aside

#: Messages of a list that are looked at; where it has more, half of these from either end.
LOOKED_AT: Final = 200


class SetAside(NamedTuple):
    """What a gate keeps back.

    Attributes:
        deliveries: that its messages carry.
        whole: whether all of them were looked at; else the number is what those that were make likely.
    """

    messages: int = 0
    deliveries: int = 0
    whole: bool = True

    def plus(self, other: "SetAside") -> "SetAside":
        """Both together."""
        return SetAside(self.messages + other.messages, self.deliveries + other.deliveries, self.whole and other.whole)

    @property
    def words(self) -> str:
        """`about 10,000 deliveries in 344 Celery messages`."""
        messages = f"{self.messages:,} Celery message{'' if self.messages == 1 else 's'}"
        if not self.deliveries:
            return messages
        deliveries = f"{self.deliveries:,} deliver{'y' if self.deliveries == 1 else 'ies'}"
        return f"{'' if self.whole else 'about '}{deliveries} in {messages}"


NONE_ASIDE: Final = SetAside()


def set_aside(broker: Broker) -> dict[str, SetAside]:
    """What each gate keeps back; nothing where the broker has no gates.

    Raises:
        HandoffFailed: the broker does not answer.
    """
    found: dict[str, SetAside] = {}
    with broker.producer() as producer:
        channel: Any = producer.channel
        if not isinstance(channel, Channel):
            return {}
        for gate, length, some in some_aside(channel, LOOKED_AT):
            carried = sum(map(_deliveries, some))
            likely = round(carried * length / len(some)) if some else 0
            found[gate] = found.get(gate, NONE_ASIDE).plus(SetAside(length, likely, length <= len(some)))
    return found


def _deliveries(raw: bytes) -> int:
    return sum(len(offsets) for headers in headers_in(raw) for _, offsets in offsets_in(headers))
