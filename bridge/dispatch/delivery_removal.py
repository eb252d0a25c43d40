"""The removal of deliveries from the broker's messages: a message that carries others too keeps these."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from kombu.utils.json import dumps

from bridge.dispatch.broker_search import read_message_headers
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import MalformedDelivery
from bridge.formats.celery_header import HEADER, from_header, to_header
from bridge.formats.delivery import Delivery
from lossless.transport.channel import Channel
from lossless.transport.delayed_messages import JOINED, format_joined_count
from lossless.transport.queue_inspection import find_messages
from lossless.transport.queue_rewrite import rewrite_queue, rewrite_server_files
from lossless.transport.storage_layout import decode_message

#: Returns whether a delivery is removed.
Chosen = Callable[[Delivery], bool]


class DeliveryRemoval:
    """The removal of deliveries. Each method raises HandoffFailed if the broker does not answer.

    Parameters:
        chosen: which deliveries are removed.
    """

    def __init__(self, broker: CeleryBroker, chosen: Chosen) -> None:
        self._broker, self._chosen = broker, chosen

    def find(self, queues: Collection[str]) -> dict[str, list[Delivery]] | None:
        """Return the chosen deliveries by place: `queued`, or `taken` by a worker; `None` if the broker cannot list its
        messages.
        """
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return None
            found: dict[str, dict[object, Delivery]] = {"queued": {}, "taken": {}}
            for queue in sorted(queues):
                for raw, where, _ in find_messages(channel, queue):
                    message = _decode(raw)
                    place = "queued" if message is not None and where != "taken" else "taken"
                    for headers in read_message_headers(raw):
                        for delivery in _read_deliveries(headers):
                            if self._chosen(delivery):
                                # Groups that share a queue have the same identities.
                                found[place][delivery.message.origin, delivery.task_id, delivery.again] = delivery
            return {place: list(some.values()) for place, some in found.items()}

    def remove(self, queues: Collection[str]) -> int:
        """Remove the chosen deliveries from the messages that no worker has taken; return how many messages changed."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return 0
            changed = 0
            for queue in sorted(queues):
                replaced, removed = rewrite_queue(channel, queue, self._change)
                changed += replaced + removed
            return changed

    def rewrite_files(self) -> str:
        """Have the broker's Redis rewrite its files; return why it did not, or nothing."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            return rewrite_server_files(channel.bare_client()) if isinstance(channel, Channel) else ""

    def _change(self, raw: bytes) -> bytes | None:
        message = _decode(raw)
        if message is None:
            return raw
        try:
            batch = from_header(str(message["headers"].get("task")), message["headers"][HEADER])
        except MalformedDelivery:
            return raw
        kept = tuple(delivery for delivery in batch.deliveries if not self._chosen(delivery))
        if len(kept) == len(batch.deliveries):
            return raw
        if not kept:
            return None
        header = to_header(replace(batch, deliveries=kept))
        if JOINED in message["headers"][HEADER]:
            header[JOINED] = format_joined_count(len(kept))
        message["headers"][HEADER] = header
        return str(dumps(message)).encode()


def _decode(raw: bytes) -> Any:
    """Return a message that carries deliveries itself; `None` for any other."""
    try:
        message = decode_message(raw)
        return message if HEADER in message["headers"] else None
    except Exception:  # anybody may put anything into a queue
        return None


def _read_deliveries(headers: Any) -> tuple[Delivery, ...]:
    try:
        return from_header(str(headers.get("task")), headers[HEADER]).deliveries
    except (MalformedDelivery, KeyError):
        return ()
