"""The search of the broker's messages for deliveries: queued, taken, waiting or set aside by a gate."""

from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kombu.utils.json import loads

from bridge.dispatch.carrier_message import (
    CarrierMessage,
    DeliveryKey,
    PartitionHandler,
    WaitingFailures,
    find_carried_deliveries,
    read_carrier,
    read_offsets,
    read_retry_offsets,
    sum_up_failures,
)
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.formats.celery_header import HEADER
from bridge.handler_routes import queue_of
from lossless.transport.channel import Channel
from lossless.transport.queue_inspection import find_first_waiting, find_messages, sample_set_aside

#: Messages of a queue that wait, and are looked at for what they say of their failures: the first that are due.
WAITING_LOOKED_AT: Final = 200


class BrokerSearch:
    """What lies in queues, with workers, and waits there for its time. Each method raises HandoffFailed when the broker
    does not answer.
    """

    def __init__(self, broker: CeleryBroker) -> None:
        self._broker = broker

    def failing(self, queues: Collection[str]) -> list[WaitingFailures]:
        """What waits in those queues after a failure, as far as the first messages of each that are due say it."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return []
            found: list[WaitingFailures] = []
            for queue in sorted(queues):
                entries = find_first_waiting(channel, queue, WAITING_LOOKED_AT)
                headers = [(each, seen.due) for seen in entries for each in read_message_headers(seen.raw)]
                found += sum_up_failures(headers, channel.waiting_count(queue) > len(entries))
            return found

    def deliveries(self, queues: Collection[str]) -> dict[str, int]:
        """How many deliveries the messages of those queues carry; for queues that are short, of which all is read."""
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return {}
            found: dict[str, int] = {}
            for queue in queues:
                # Each message is seen twice, and counts once.
                counts: dict[int, int] = {}
                for raw, *_ in find_messages(producer.channel, queue):
                    owned = (read_offsets(headers) for headers in read_message_headers(raw))
                    counts[hash(raw)] = sum(len(offsets) for owners in owned for _, offsets in owners)
                found[queue] = sum(counts.values())
            return found

    def search(self, queue: str, suspects: dict[PartitionHandler, set[int]]) -> Iterator[None]:
        """Look for deliveries wherever in the broker messages for a queue are: waiting, taken, to be buried.

        One step a message. What is found is taken from `suspects`; what is left there at the end is nowhere. Where
        the transport cannot list its messages nothing is left: it is not known.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                suspects.clear()
                return
            for name in sorted({queue, self._burials()}):
                for raw, *_ in find_messages(producer.channel, name):
                    for owner, offsets in _read_owners(raw):
                        suspects.get(owner, set()).difference_update(offsets)
                    if not any(suspects.values()):
                        return
                    yield

    def carriers(
        self, queues: Collection[str], topic: str, wanted: Collection[DeliveryKey]
    ) -> dict[DeliveryKey, CarrierMessage] | None:
        """The messages that carry these deliveries of a topic, as far as they are in the broker.

        Returns:
            `None` where the transport cannot list its messages.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return None
            found: dict[DeliveryKey, CarrierMessage] = {}
            for queue in sorted({*queues, self._burials()}):
                for raw, where, due in find_messages(producer.channel, queue):
                    for headers in read_message_headers(raw):
                        for which, more in find_carried_deliveries(headers, topic, wanted):
                            found.setdefault(which, read_carrier(headers, more, queue, where, due))
                    if len(found) == len(wanted):
                        return found
            return found

    def _burials(self) -> str:
        """The queue that messages are sent to that are to be buried."""
        app = self._broker.app
        return queue_of(app, app.tasks.get(app.conf.get("burial_task")))


def _read_owners(raw: bytes) -> Iterator[tuple[PartitionHandler, Sequence[int]]]:
    """What a message carries: deliveries, and the records of retry topics by which they came."""
    for headers in read_message_headers(raw):
        yield from read_offsets(headers)
        yield from read_retry_offsets(headers)


def read_message_headers(raw: bytes) -> list[Mapping[str, Any]]:
    """The headers of a message, and those of the one that it is to bury, if it is a burial."""
    try:
        message = loads(raw)
        found = [message["headers"]]
        if HEADER not in message["headers"]:
            found += [argument["headers"] for argument in loads(b64decode(message["body"]))[0]]
    except Exception:  # anybody may put anything into a queue: what cannot be read carries no record of ours
        found = []
    return [headers for headers in found if isinstance(headers, Mapping)]


#: Messages of a list that are looked at; where it has more, half of these from either end.
ASIDE_LOOKED_AT: Final = 200


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


def count_set_aside(broker: CeleryBroker) -> dict[str, SetAside]:
    """What each gate keeps back; nothing where the broker has no gates.

    Raises:
        HandoffFailed: the broker does not answer.
    """
    found: dict[str, SetAside] = {}
    with broker.producer() as producer:
        channel: Any = producer.channel
        if not isinstance(channel, Channel):
            return {}
        for gate, length, some in sample_set_aside(channel, ASIDE_LOOKED_AT):
            carried = sum(map(_count_deliveries, some))
            likely = round(carried * length / len(some)) if some else 0
            found[gate] = found.get(gate, NONE_ASIDE).plus(SetAside(length, likely, length <= len(some)))
    return found


def _count_deliveries(raw: bytes) -> int:
    return sum(len(offsets) for headers in read_message_headers(raw) for _, offsets in read_offsets(headers))
