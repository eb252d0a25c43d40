"""The search of the broker's messages for deliveries: queued, taken, waiting for a retry, or set aside by a gate."""

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
from bridge.formats.text_forms import format_count
from bridge.handler_routes import queue_of
from lossless.transport.channel import Channel
from lossless.transport.queue_inspection import find_first_waiting, find_messages, sample_set_aside

#: Waiting messages of a queue whose failures are read: the first that are due.
WAITING_READ: Final = 200


class BrokerSearch:
    """The search of the broker's messages. Each method raises HandoffFailed if the broker does not answer."""

    def __init__(self, broker: CeleryBroker) -> None:
        self._broker = broker

    def failing(self, queues: Collection[str]) -> list[WaitingFailures]:
        """Return the deliveries that wait after a failure, by the first due messages of each queue."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return []
            failures: list[WaitingFailures] = []
            for queue in sorted(queues):
                entries = find_first_waiting(channel, queue, WAITING_READ)
                headers = [(headers, seen.due) for seen in entries for headers in read_message_headers(seen.raw)]
                failures += sum_up_failures(headers, channel.waiting_count(queue) > len(entries))
            return failures

    def deliveries(self, queues: Collection[str]) -> dict[str, int]:
        """Return how many deliveries each queue carries; all of it is read, so it is for short queues."""
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return {}
            totals: dict[str, int] = {}
            for queue in queues:
                # A message that is seen twice counts once.
                counts: dict[int, int] = {}
                for raw, *_ in find_messages(producer.channel, queue):
                    carried = (read_offsets(headers) for headers in read_message_headers(raw))
                    counts[hash(raw)] = sum(len(offsets) for owners in carried for _, offsets in owners)
                totals[queue] = sum(counts.values())
            return totals

    def search(self, queue: str, suspects: dict[PartitionHandler, set[int]]) -> Iterator[None]:
        """Search all messages of a queue for deliveries: waiting, taken, to be buried; yield after each message.

        Deliveries that are found are taken out of `suspects`: those left at the end are in no message. A transport
        that cannot list its messages leaves none.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                suspects.clear()
                return
            for name in sorted({queue, self._burial_queue()}):
                for raw, *_ in find_messages(producer.channel, name):
                    for owner, offsets in _read_owners(raw):
                        suspects.get(owner, set()).difference_update(offsets)
                    if not any(suspects.values()):
                        return
                    yield

    def carriers(
        self, queues: Collection[str], topic: str, wanted: Collection[DeliveryKey]
    ) -> dict[DeliveryKey, CarrierMessage] | None:
        """Return the messages in the broker that carry these deliveries of a topic.

        Returns:
            `None` if the transport cannot list its messages.
        """
        with self._broker.producer() as producer:
            if not isinstance(producer.channel, Channel):
                return None
            found: dict[DeliveryKey, CarrierMessage] = {}
            for queue in sorted({*queues, self._burial_queue()}):
                for raw, where, due in find_messages(producer.channel, queue):
                    for headers in read_message_headers(raw):
                        for key, metadata in find_carried_deliveries(headers, topic, wanted):
                            found.setdefault(key, read_carrier(headers, metadata, queue, where, due))
                    if len(found) == len(wanted):
                        return found
            return found

    def _burial_queue(self) -> str:
        """Return the queue of messages that are to be buried."""
        app = self._broker.app
        return queue_of(app, app.tasks.get(app.conf.get("burial_task")))


def _read_owners(raw: bytes) -> Iterator[tuple[PartitionHandler, Sequence[int]]]:
    """Yield what a message carries: deliveries, and the retry records by which they came."""
    for headers in read_message_headers(raw):
        yield from read_offsets(headers)
        yield from read_retry_offsets(headers)


def read_message_headers(raw: bytes) -> list[Mapping[str, Any]]:
    """Return the headers of a message, and of the one that it buries, if it is a burial."""
    try:
        message = loads(raw)
        found = [message["headers"]]
        if HEADER not in message["headers"]:
            found += [argument["headers"] for argument in loads(b64decode(message["body"]))[0]]
    except Exception:  # anybody may put anything into a queue: an unreadable message carries no delivery
        found = []
    return [headers for headers in found if isinstance(headers, Mapping)]


#: Messages of a list that are read; if it has more, half of these from either end.
ASIDE_READ: Final = 200


class SetAside(NamedTuple):
    """The messages that a gate keeps back.

    Attributes:
        deliveries: deliveries in them.
        whole: whether all messages were read; else the number of deliveries is an estimate.
    """

    messages: int = 0
    deliveries: int = 0
    whole: bool = True

    def plus(self, other: "SetAside") -> "SetAside":
        """Return both together."""
        return SetAside(self.messages + other.messages, self.deliveries + other.deliveries, self.whole and other.whole)

    @property
    def words(self) -> str:
        """Return words such as `about 10,000 deliveries in 344 Celery messages`."""
        messages = format_count(self.messages, "Celery message")
        if not self.deliveries:
            return messages
        deliveries = format_count(self.deliveries, "delivery")
        return f"{'' if self.whole else 'about '}{deliveries} in {messages}"


NONE_ASIDE: Final = SetAside()


def count_set_aside(broker: CeleryBroker) -> dict[str, SetAside]:
    """Return what each gate keeps back; nothing if the broker has no gates.

    Raises:
        HandoffFailed: the broker does not answer.
    """
    aside: dict[str, SetAside] = {}
    with broker.producer() as producer:
        channel: Any = producer.channel
        if not isinstance(channel, Channel):
            return {}
        for gate, length, sample in sample_set_aside(channel, ASIDE_READ):
            carried = sum(map(_count_deliveries, sample))
            likely = round(carried * length / len(sample)) if sample else 0
            aside[gate] = aside.get(gate, NONE_ASIDE).plus(SetAside(length, likely, length <= len(sample)))
    return aside


def _count_deliveries(raw: bytes) -> int:
    return sum(len(offsets) for headers in read_message_headers(raw) for _, offsets in read_offsets(headers))
