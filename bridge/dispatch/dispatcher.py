"""The hand-off of ready deliveries to the Celery broker: at-least-once; once if ledger and broker are one Redis.

There a queue entry and its mark `handed` are one step. Elsewhere a bridge that is killed between the two hands the
deliveries of that step off again.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.celery_message import PackedMessage, cut_step, pack_group
from bridge.dispatch.fate_sync import PendingMarks
from bridge.dispatch.handoff_spans import HandoffSpans
from bridge.dispatch.retry_share import RetryShareAllocator
from bridge.dispatch.source_record_check import SourceRecordExists, TakenGroup, leave_out_ended
from bridge.dispatch.suspended_handlers import NONE_HALTED, SuspendedHandlers
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Account, Fate, Ledger, Mark, Push
from bridge.ledger.delivery_counts import CountKey, add_counts
from bridge.ledger.fate_rules import OVERWRITES
from bridge.ledger.ledger_hook import format_fate_place
from bridge.partitions.ordering import Portion
from bridge.partitions.partition import Partition
from bridge.telemetry.otel_sdk import find_spans

logger = logging.getLogger(__name__)

#: Messages of a halted handler that one turn hands off from a partition, while others of the partition go on.
HELD_ROOM: Final = 200


class PartitionRotation:
    """The rotation of partitions with something ready: the first is last the next time."""

    def __init__(self) -> None:
        self._last: Place = ("", -1)

    def order(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the partitions with something ready, in the order of their turns."""
        ready = sorted(
            (partition for partition in partitions if any(partition.ready.values()) or any(partition.waiting.values())),
            key=lambda partition: partition.place,
        )
        start = next((index for index, partition in enumerate(ready) if partition.place > self._last), 0)
        if ready:
            self._last = ready[start].place
        return [*ready[start:], *ready[:start]]


class ReplayCounter:
    """The count of deliveries handed off from replay topics, until the ledger has it.

    Parameters:
        ledger: `None` without Redis: nothing is counted.
        handlers: the handlers that are counted: a replay record may name any.
        clock: Unix time.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        names: TopicNames,
        topics: Iterable[str],
        handlers: Collection[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger, self._handlers, self._clock = ledger, handlers, clock
        self._sources = {names.replay(topic): topic for topic in topics}
        self._pending: dict[CountKey, int] = {}

    def count_handoff(self, topic: str, handler: str, number: int) -> None:
        """Count deliveries of a topic that went out, if it is a replay topic."""
        if (source := self._sources.get(topic)) is not None and handler in self._handlers:
            key = CountKey(source, handler, "replayed", int(self._clock() // 60))
            self._pending[key] = self._pending.get(key, 0) + number

    def write_counts(self) -> None:
        """Write the counts; without an answer of Redis they are dropped."""
        pending, self._pending = self._pending, {}
        if self._ledger is None or not pending:
            return
        try:
            add_counts(self._ledger, pending)
        except LedgerUnavailable as error:
            logger.debug("%s", error)


class HandoffCounts:
    """The counts of deliveries that went out: as metrics, and those of replay topics in the ledger."""

    def __init__(self, metrics: BridgeMetrics, replays: ReplayCounter) -> None:
        self._metrics, self._replays = metrics, replays

    def count_handoff(self, packed: Sequence[PackedMessage]) -> None:
        """Count the deliveries of messages that went out."""
        counts: dict[tuple[str, str], int] = {}
        for message in packed:
            key = (message.partition.topic, message.group.handler)
            counts[key] = counts.get(key, 0) + len(message.group.offsets)
        for (topic, handler), count in counts.items():
            self._metrics.handed_off.labels(topic, handler).inc(count)
            self._replays.count_handoff(topic, handler, count)


class HandoffRoom:
    """The room for deliveries: of source topics by the batch sizes, of retry and replay topics by their share."""

    def __init__(self, sizes: BatchSizer, shares: RetryShareAllocator) -> None:
        self._sizes, self._shares = sizes, shares

    def poll_sizes(self) -> None:
        """Poll what batch sizes depend on, if that is due."""
        self._sizes.poll()

    def find_portions(self, ready: Mapping[str, int], parked: bool) -> dict[str, Portion]:
        """Return what may be taken now.

        Parameters:
            ready: by handler, the deliveries that may be handed out.
            parked: whether they are of retry and replay topics.
        """
        if not parked:
            return self._sizes.portions(ready)
        # The queues are polled only if something is due.
        return self._shares.portions(ready) if ready else {}

    def note_handoff(self, packed: Sequence[PackedMessage]) -> None:
        """Note the messages that went into their queues."""
        for handler in {message.group.handler for message in packed}:
            sent = [message for message in packed if message.group.handler == handler]
            deliveries = sum(len(message.group.offsets) for message in sent)
            self._sizes.note_handed(handler, len(sent), deliveries, sum(message.size for message in sent))
        for message in packed:
            if not message.parked:
                self._sizes.note_message(message.group.handler, message.account, message.group.offsets)
            self._shares.note_handed(
                message.group.handler, message.account, message.group.offsets, parked=message.parked
            )


class HandoffScope(NamedTuple):
    """The cluster and group whose deliveries go out.

    Attributes:
        one_step: whether ledger and broker are the same Redis, so that pushing and marking are one step.
    """

    cluster: str
    group: str
    one_step: bool


class Dispatcher:
    """The dispatcher, which hands out what partitions have ready.

    Parameters:
        ledger: `None` without Redis: then a restarted bridge may hand out again what it had not committed.
        exists: whether a source record exists (SourceRecordCheck).
    """

    def __init__(
        self,
        broker: CeleryBroker,
        ledger: Ledger | None,
        marks: PendingMarks,
        room: HandoffRoom,
        counts: HandoffCounts,
        scope: HandoffScope,
        exists: SourceRecordExists = lambda *_: True,
    ) -> None:
        self._broker, self._ledger, self._marks, self._room = broker, ledger, marks, room
        self._counts, self._scope, self._exists = counts, scope, exists
        spans = find_spans()
        #: Sends a step; where traces are on, within the spans of its messages.
        self._send_step = self._send if spans is None else HandoffSpans(spans, broker, self._send).send
        #: Of parked deliveries (True), and of all others: each kind has room of its own.
        self._rotations = {True: PartitionRotation(), False: PartitionRotation()}
        self._holds = {True: False, False: False}
        self._by_halt = NONE_HALTED

    @property
    def holds(self) -> bool:
        """Return whether ready deliveries wait for a batch size or for their share."""
        return any(self._holds.values())

    def hand_out(
        self,
        partitions: Sequence[Partition],
        suspended: SuspendedHandlers = SuspendedHandlers(),  # noqa: B008
        *,
        parked: bool = False,
    ) -> int:
        """Hand off ready deliveries; return how many went out.

        Parameters:
            partitions: of source topics; or of retry and replay topics (`parked`), which have room of their own.
            suspended: handlers of which nothing goes out now, and where.

        Raises:
            HandoffFailed, LedgerUnavailable: deliveries that did not go out are given back, to be handed off later.
        """
        self._marks.write()
        taken = self._take(partitions, suspended, parked)
        packed: list[PackedMessage] = []
        sent = 0
        try:
            taken, ended = leave_out_ended(self._ledger, taken, self._exists)
            if ended:
                # At once: a poll of the ledger would find them open, and take that for a loss.
                self._marks.add(ended)
                self._marks.write()
            for partition, group, records in taken:
                message, left = pack_group(partition, group, records, self._scope.cluster, self._scope.group)
                if left:
                    partition.give_back(group.handler, left)
                packed.append(message)
            while sent < len(packed):
                step = cut_step(packed, sent)
                try:
                    self._send_step(step)
                except HandoffFailed as error:
                    sent += error.confirmed
                    raise
                # Sent is sent, whether the ledger takes the marks or not: they wait, with the commit.
                sent += len(step)
                self._marks.write()
            if packed:
                # After the hand-off: a record on a quiet topic does not wait for the poll.
                self._room.poll_sizes()
        except BaseException:
            # The last taken goes back first, so that all keep their position.
            for partition, group, _ in reversed(taken[len(packed) :]):
                partition.give_back(group.handler, group.offsets)
            for unsent in reversed(packed[sent:]):
                unsent.partition.give_back(unsent.group.handler, unsent.group.offsets)
            raise
        return sum(len(each.group.offsets) for each in packed)

    def _take(self, partitions: Sequence[Partition], suspended: SuspendedHandlers, parked: bool) -> list[TakenGroup]:
        """Take ready deliveries as far as there is room, from another partition on each time."""
        in_turn = self._rotations[parked].order(partitions)
        ready = _count_ready(in_turn)
        if self.holds or sum(ready.values()) > 1:
            self._room.poll_sizes()
        portions = self._room.find_portions(ready, parked)
        self._by_halt = suspended.by_halt
        taken = [
            (partition, *group)
            for partition in in_turn
            for group in partition.take(
                {
                    **portions,
                    **self._find_held_portions(partition, portions, parked),
                    **{name: Portion(1, 1, room=0) for name in _find_suspended(partition, suspended, parked)},
                }
            )
        ]
        waiting = (suspended.parked if parked else suspended.down) | {name for _, name in suspended.by_halt.halted}
        self._holds[parked] = any(portion.spent for name, portion in portions.items() if name not in waiting)
        return taken

    def _find_held_portions(
        self, partition: Partition, portions: Mapping[str, Portion], parked: bool
    ) -> dict[str, Portion]:
        """Return the portions of halted handlers: their deliveries wait at a gate, where they keep no worker busy."""
        return {
            name: Portion(portions[name].size, portions[name].alone, HELD_ROOM, portions[name].why)
            for topic, name in self._by_halt.halted
            if topic == partition.source and name in portions and not parked
        }

    def _send(self, packed: Sequence[PackedMessage]) -> None:
        if self._ledger is not None and self._scope.one_step:
            self._note(self._push_and_mark(self._ledger, packed))
            return
        # Publish, wait for the acknowledgement, then mark: after a crash in between they are handed out again.
        try:
            self._broker.publish(each.outgoing for each in packed)
        except HandoffFailed as error:
            self._note_published(packed[: error.confirmed])
            raise
        self._note_published(packed)

    def _note_published(self, packed: Sequence[PackedMessage]) -> None:
        self._marks.add([Mark(each.account, each.group.offsets, Fate.HANDED) for each in packed])
        self._note(packed)

    def _push_and_mark(self, ledger: Ledger, packed: Sequence[PackedMessage]) -> list[PackedMessage]:
        """Return the messages that went out; the ledger pushes one only if all its deliveries are open."""
        pushes = self._pushes(ledger, packed)
        sent: list[PackedMessage] = []
        for (push, carriers), result in zip(pushes, ledger.write([push for push, _ in pushes]), strict=True):
            changed = set(result.changed)
            for number, message in enumerate(carriers):
                if message.group.offsets[0] in changed:
                    sent.append(message)
                else:
                    before = result.before if push.whole else result.before[number : number + 1]
                    self._take_back(message, before, result.free if push.whole else ())
        return sent

    def _pushes(self, ledger: Ledger, packed: Sequence[PackedMessage]) -> list[tuple[Push, list[PackedMessage]]]:
        """Return the pushes for the ledger: one for each batch, and one for all single deliveries of an account."""
        pushes: list[tuple[Push, list[PackedMessage]]] = []
        singles: dict[tuple[Account, str], list[tuple[PackedMessage, bytes]]] = {}
        for message in packed:
            alone = message.group.offsets[0] if len(message.group.offsets) == 1 else None
            # The worker looks up a retry record itself: the fate of its source record counts too.
            fate_place = "" if alone is None or message.parked else format_fate_place(ledger, message.account, alone)
            key, entry = self._broker.entry(message.outgoing, fate_place)
            if alone is not None:
                singles.setdefault((message.account, key), []).append((message, entry))
            else:
                pushes.append((Push(message.account, message.group.offsets, key, [entry]), [message]))
        for (account, key), carriers in singles.items():
            carriers.sort(key=lambda message: message[0].group.offsets)
            offsets = [message.group.offsets[0] for message, _ in carriers]
            pushes.append(
                (Push(account, offsets, key, [entry for _, entry in carriers]), [message for message, _ in carriers])
            )
        return pushes

    def _take_back(self, packed: PackedMessage, before: bytes, free: Sequence[int]) -> None:
        """Take back a message of which another bridge handed off a part: the rest goes out as a batch of its own.

        Parameters:
            before: the fates of its deliveries.
            free: the offsets that are still open.
        """
        partition, handler = packed.partition, packed.group.handler
        by_fate: dict[Fate, list[int]] = {}
        for offset, fate in zip(packed.group.offsets, before, strict=True):
            # An invalid fate stays as it is: the next poll of the ledger reports it.
            if offset not in free and fate in OVERWRITES:
                by_fate.setdefault(Fate(fate), []).append(offset)
        for fate, offsets in by_fate.items():
            self._marks.add(partition.settle(handler, offsets, fate))
        if free:
            partition.give_back(handler, list(free))

    def _note(self, packed: Sequence[PackedMessage]) -> None:
        for message in packed:
            message.partition.note_handed(message.group.handler, message.group.offsets)
        self._counts.count_handoff(packed)
        halted = self._by_halt.halted
        if halted:
            packed = [each for each in packed if (each.partition.source, each.group.handler) not in halted]
        self._room.note_handoff(packed)


def _find_suspended(partition: Partition, suspended: SuspendedHandlers, parked: bool) -> Iterable[str]:
    """Return the handlers of which nothing of a partition goes out.

    In a retry topic each record is of one handler: due records of one that may not run would fill the broker.
    """
    if parked:
        return suspended.find_parked(partition.source)
    return suspended.find_suspended(partition.handlers, partition.source)


def _count_ready(partitions: Iterable[Partition]) -> dict[str, int]:
    """Return, by handler, how many deliveries are ready."""
    ready: dict[str, int] = {}
    for partition in partitions:
        for handler, count in partition.ready.items():
            ready[handler] = ready.get(handler, 0) + count
    return ready
