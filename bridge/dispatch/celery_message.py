"""The Celery message of a batch: its form, and how many messages one step carries.

bridge/partitions/ordering.py has its largest size.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from celery import Celery, signals
from kombu import Queue
from kombu.serialization import dumps

from bridge.formats.celery_header import HEADER, header_of
from bridge.formats.delivery import Via
from bridge.formats.delivery_identity import batch_id, label_records
from bridge.formats.delivery_row import DeliveryRow, make_row
from bridge.formats.gate_names import gates_for
from bridge.handler_routes import find_queue
from bridge.ledger import RETRY_RECORD, Account
from bridge.partitions.due_queue import HeldRecord
from bridge.partitions.ordering import MESSAGE_BYTES, DeliveryGroup
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition
from lossless.transport.message_gates import GATES


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """A batch to be sent to the Celery broker.

    Attributes:
        task_id: the Celery task id.
        label: shown by Flower and the logs as its arguments.
        why: shown by Flower as its keyword arguments: the reason for its size.
        header: the `kafka` header (bridge.formats.celery_header).
    """

    handler: str
    task_id: str
    label: str
    header: dict[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """The common part of a handler's messages, made by Celery itself.

    A message made whole by Celery costs 77 µs, most of it for what never changes. Here Celery makes one for each
    handler, and each batch adds its own parts.
    """

    headers: dict[str, Any]
    body: bytes
    properties: dict[str, Any]
    queue: Queue
    publish: dict[str, Any]
    expires: float | None
    needs: tuple[str, ...] = ()

    @classmethod
    def build(cls, app: Celery, handler: str) -> "MessageTemplate":
        """Return the template of a handler, routed by Celery's own router.

        An unknown handler's messages go to the default queue: a parked delivery names its handler, which may have been
        renamed since. The workers have a rule for unknown handlers.
        """
        task: Any = app.tasks.get(handler) or _UnknownTask()
        options = dict(task._get_exec_options())
        expires = options.pop("expires", None)
        routed = app.amqp.router.route(options, handler, (), {}, task)
        message = app.amqp.as_task_v2(
            "",
            handler,
            (),
            {},
            time_limit=task.time_limit,
            soft_time_limit=task.soft_time_limit,
            ignore_result=task.ignore_result,
            argsrepr="",
            kwargsrepr="{}",
        )
        _, _, body = dumps(message.body, serializer="json")
        return cls(
            headers=message.headers,
            body=str(body).encode(),
            properties=message.properties,
            queue=find_queue(app, routed),
            publish={
                "delivery_mode": routed.get("delivery_mode") or app.conf.task_default_delivery_mode,
                "priority": routed.get("priority") or 0,
            },
            expires=expires,
            needs=tuple(getattr(task, "needs", ())),
        )

    def message(self, outgoing: OutgoingBatch, held: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return headers and properties of a batch's message, as receivers of `before_task_publish` leave them.

        Parameters:
            held: the gate of its handler, if that is halted.
        """
        headers = dict(self.headers)
        headers["id"] = headers["root_id"] = outgoing.task_id
        headers["argsrepr"] = outgoing.label
        if outgoing.why:
            headers["kwargsrepr"] = f"{{batch: {outgoing.why}}}"
        headers[HEADER] = outgoing.header
        if self.expires is not None:
            headers["expires"] = datetime.fromtimestamp(time.time() + self.expires, UTC).isoformat()
        kafka = outgoing.header
        gates = gates_for(kafka["group"], kafka["topic"], self.needs, again="via" in kafka, held=held)
        properties = {**self.properties, "correlation_id": outgoing.task_id, GATES: gates}
        if signals.before_task_publish.receivers:
            signals.before_task_publish.send(
                sender=outgoing.handler,
                body=((), {}, {}),
                headers=headers,
                properties=properties,
                exchange="",
                routing_key=self.queue.name,
                declare=[self.queue],
                retry_policy={},
            )
        return headers, properties


class _UnknownTask:
    """A stand-in for the task of an unknown handler."""

    time_limit = soft_time_limit = None
    ignore_result = True

    def _get_exec_options(self) -> dict[str, Any]:
        return {}


#: Most deliveries of one step of the ledger: a script stops all else in Redis while it runs.
STEP_DELIVERIES: Final = 5_000
#: Most Celery messages in one step; with STEP_BYTES, most that one step may send to Redis.
STEP_MESSAGES: Final = 1_000
#: Most bytes of keys, values and headers in one step; a single larger message goes alone.
STEP_BYTES: Final = 12_000_000


@dataclass(frozen=True, slots=True)
class PackedMessage:
    """A message that is ready to be sent.

    Attributes:
        group: the deliveries that it carries.
        size: bytes of keys, values and headers.
    """

    partition: Partition
    group: DeliveryGroup
    outgoing: OutgoingBatch
    size: int

    @property
    def account(self) -> Account:
        """Return the account with the fates of its deliveries, at the coordinates at which they were read."""
        parked = isinstance(self.partition, RetryPartition)
        return self.partition.accounts[RETRY_RECORD if parked else self.group.handler]

    @property
    def parked(self) -> bool:
        """Return whether its deliveries came by a retry or replay topic."""
        return isinstance(self.partition, RetryPartition)


def pack_group(
    partition: Partition, group: DeliveryGroup, records: Sequence[Any], cluster: str, bridge_group: str
) -> tuple[PackedMessage, list[int]]:
    """Return a group as a message, and the offsets that would make it too large."""
    if isinstance(partition, RetryPartition):
        return _pack_parked(partition, group, records, cluster, bridge_group), []
    rows = [make_row(record) for record in records]
    fitting, size = _count_fitting(rows)
    left, fits = group.offsets[fitting:], DeliveryGroup(group.handler, group.offsets[:fitting], group.why)
    topic, number = partition.topic, partition.number
    outgoing = OutgoingBatch(
        group.handler,
        batch_id(topic, number, fits.offsets, group.handler),
        label_records(topic, number, fits.offsets),
        header_of(topic, number, cluster, bridge_group, partition.topic_id, partition.chosen.order, rows[:fitting]),
        group.why,
    )
    return PackedMessage(partition, fits, outgoing, size), left


def _pack_parked(
    partition: RetryPartition, group: DeliveryGroup, held: Sequence[HeldRecord], cluster: str, bridge_group: str
) -> PackedMessage:
    """Return the message of retry records: under the coordinates and in the order of their source records."""
    owner, records = held[0].owner, sorted(held, key=lambda record: record.origin)
    offsets = [record.origin for record in records]
    rows = [DeliveryRow.from_delivery(record.delivery) for record in records]
    via = Via(partition.topic, partition.number, -1, partition.topic_id)
    header = header_of(owner.topic, owner.partition, cluster, bridge_group, owner.topic_id, partition.order, rows, via)
    number = max(record.delivery.number for record in records)
    outgoing = OutgoingBatch(
        owner.handler,
        batch_id(owner.topic, owner.partition, offsets, owner.handler) + (f"#{number}" if number else ""),
        label_records(owner.topic, owner.partition, offsets),
        header,
        group.why,
    )
    return PackedMessage(partition, group, outgoing, sum(row.size for row in rows))


def cut_step(packed: Sequence[PackedMessage], start: int) -> Sequence[PackedMessage]:
    """Return the messages from `start` on that one step may carry."""
    count, size, end = 0, 0, start
    while end < len(packed) and end - start < STEP_MESSAGES:
        count += len(packed[end].group.offsets)
        size += packed[end].size
        if end > start and (count > STEP_DELIVERIES or size > STEP_BYTES):
            break
        end += 1
    return packed[start:end]


def _count_fitting(rows: Sequence[DeliveryRow]) -> tuple[int, int]:
    """Return how many of these rows (at least one) fit into a message, and their bytes."""
    total = 0
    for number, row in enumerate(rows):
        size = row.size
        if total + size > MESSAGE_BYTES and number:
            return number, total
        total += size
    return len(rows), total
