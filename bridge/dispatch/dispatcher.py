"""Hand-off of ready deliveries to the Celery broker, through the ledger: each open one goes out once."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.celery_message import PackedMessage, cut_step, pack_group
from bridge.dispatch.fate_sync import PendingMarks
from bridge.dispatch.retry_share_allocator import RetryShareAllocator
from bridge.dispatch.source_record_check import SourceRecordExists, TakenGroup, leave_out_ended
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Account, Fate, Ledger, Mark, Push
from bridge.ledger.attempt_statistics import CountKey, add_counts
from bridge.ledger.fate_rules import OVERWRITES
from bridge.ledger.ledger_hook import format_fate_place
from bridge.partitions.ordering import Portion
from bridge.partitions.partition import Partition


class PartitionRotation:
    """Who was first is last the next time; who has nothing ready has no turn, and gives none to its neighbour."""

    def __init__(self) -> None:
        self._last: Place = ("", -1)

    def of(self, partitions: Iterable[Partition]) -> list[Partition]:
        """These with something ready, in the order of their turns."""
        some = sorted(
            (each for each in partitions if any(each.ready.values()) or any(each.waiting.values())),
            key=lambda each: each.place,
        )
        start = next((at for at, each in enumerate(some) if each.place > self._last), 0)
        if some:
            self._last = some[start].place
        return [*some[start:], *some[:start]]


logger = logging.getLogger(__name__)


class ReplayCounter:
    """What has been handed off of replay topics and not been told yet.

    Parameters:
        ledger: `None`: nothing is told.
        handlers: that are counted: a record of a replay topic may name any.
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

    def handed(self, topic: str, handler: str, number: int) -> None:
        """Take in that so many of a topic went out; those of others than replay topics are not counted."""
        if (source := self._sources.get(topic)) is not None and handler in self._handlers:
            which = CountKey(source, handler, "replayed", int(self._clock() // 60))
            self._pending[which] = self._pending.get(which, 0) + number

    def tell(self) -> None:
        """Write what there is; what a ledger that is away does not hear is not counted."""
        pending, self._pending = self._pending, {}
        if self._ledger is None or not pending:
            return
        try:
            add_counts(self._ledger, pending)
        except LedgerUnavailable as error:
            logger.debug("%s", error)


class Dispatcher:
    """Hands out what the partitions have ready.

    Parameters:
        exists: whether a source record does (SourceEnds).
        ledger: `None` where there is no Redis for it; then a restarted bridge may hand out again what it had
            not committed.
        one_step: whether ledger and broker are the same Redis, so that pushing and marking are one step.
    """

    def __init__(
        self,
        broker: CeleryBroker,
        ledger: Ledger | None,
        marks: PendingMarks,
        sizes: BatchSizer,
        shares: RetryShareAllocator,
        one_step: bool,
        cluster: str,
        group: str,
        metrics: BridgeMetrics,
        replays: ReplayCounter,
        exists: SourceRecordExists = lambda *_: True,
    ) -> None:
        self._broker, self._ledger, self._marks, self._one_step = broker, ledger, marks, one_step
        self._sizes, self._shares = sizes, shares
        self._cluster, self._group = cluster, group
        self._metrics, self._replays, self._exists = metrics, replays, exists
        #: Of what was parked, and of all else: each has room of its own.
        self._turns = {True: PartitionRotation(), False: PartitionRotation()}
        self._holds = {True: False, False: False}

    @property
    def holds(self) -> bool:
        """Whether some of what is ready waits until it is known how many deliveries a message may carry, or for its
        share.
        """
        return any(self._holds.values())

    def hand_out(
        self,
        partitions: Sequence[Partition],
        suspended: SuspendedHandlers = SuspendedHandlers(),  # noqa: B008
        *,
        parked: bool = False,
    ) -> int:
        """Hand off what is ready; return how many deliveries went out.

        Parameters:
            partitions: of sources; or of retry and replay topics (`parked`), which have room of their own.
            kept: handlers of which nothing goes out now, and where.

        Raises:
            HandoffFailed, LedgerUnavailable: what had not gone out is given back, to be handed off later.
        """
        self._marks.tell()
        taken = self._take(partitions, suspended, parked)
        packed: list[PackedMessage] = []
        sent = 0
        try:
            taken, ended = leave_out_ended(self._ledger, taken, self._exists)
            if ended:
                # At once: a look at the ledger would find them open, and take that for a loss.
                self._marks.add(ended)
                self._marks.tell()
            for partition, group, records in taken:
                one, left = pack_group(partition, group, records, self._cluster, self._group)
                if left:
                    partition.give_back(group.handler, left)
                packed.append(one)
            while sent < len(packed):
                step = cut_step(packed, sent)
                self._send(step)
                # What is out is out, whatever the ledger says to the marks: they wait, with the commit.
                sent += len(step)
                self._marks.tell()
            if packed:
                # After it: a record on a quiet topic does not wait for the look.
                self._sizes.look()
        except BaseException:
            # What was taken last goes back first, so that all stand as they stood.
            for partition, group, _ in reversed(taken[len(packed) :]):
                partition.give_back(group.handler, group.offsets)
            for unsent in reversed(packed[sent:]):
                unsent.partition.give_back(unsent.group.handler, unsent.group.offsets)
            raise
        return sum(len(each.group.offsets) for each in packed)

    def _take(self, partitions: Sequence[Partition], suspended: SuspendedHandlers, parked: bool) -> list[TakenGroup]:
        """What is ready, as far as there is room for it: from another partition on each time."""
        in_turn = self._turns[parked].of(partitions)
        ready = _count_ready(in_turn)
        if self.holds or sum(ready.values()) > 1:
            self._sizes.look()
        portions = self._portions(ready, parked)
        taken = [
            (partition, *group)
            for partition in in_turn
            for group in partition.take(
                {
                    **portions,
                    **{name: Portion(1, 1, room=0) for name in _find_suspended(partition, suspended, parked)},
                }
            )
        ]
        waiting = suspended.parked if parked else suspended.down
        self._holds[parked] = any(portion.spent for name, portion in portions.items() if name not in waiting)
        return taken

    def _portions(self, ready: Mapping[str, int], parked: bool) -> dict[str, Portion]:
        if not parked:
            return self._sizes.portions(ready)
        # The queues are looked at for what is due alone.
        return self._shares.portions(ready) if ready else {}

    def _send(self, packed: Sequence[PackedMessage]) -> None:
        if self._ledger is not None and self._one_step:
            self._note(self._push_and_mark(self._ledger, packed))
            return
        # Publish, wait for the acknowledgement, then mark: a crash between the two hands out again.
        self._broker.publish(each.outgoing for each in packed)
        self._marks.add([Mark(each.account, each.group.offsets, Fate.HANDED) for each in packed])
        self._note(packed)

    def _push_and_mark(self, ledger: Ledger, packed: Sequence[PackedMessage]) -> list[PackedMessage]:
        """What went out of these; the ledger pushes each only while all that it carries is open."""
        pushes = self._pushes(ledger, packed)
        out: list[PackedMessage] = []
        for (push, carriers), found in zip(pushes, ledger.write([push for push, _ in pushes]), strict=True):
            changed = set(found.changed)
            for number, each in enumerate(carriers):
                if each.group.offsets[0] in changed:
                    out.append(each)
                else:
                    before = found.before if push.whole else found.before[number : number + 1]
                    self._take_back(each, before, found.free if push.whole else ())
        return out

    def _pushes(self, ledger: Ledger, packed: Sequence[PackedMessage]) -> list[tuple[Push, list[PackedMessage]]]:
        """What the ledger is asked for: a push a batch, and one for all single deliveries of an account together."""
        pushes: list[tuple[Push, list[PackedMessage]]] = []
        singles: dict[tuple[Account, str], list[tuple[PackedMessage, bytes]]] = {}
        for each in packed:
            alone = each.group.offsets[0] if len(each.group.offsets) == 1 else None
            # What comes again is looked up by the worker: its origin's fate counts beside its own.
            look = "" if alone is None or each.parked else format_fate_place(ledger, each.account, alone)
            key, entry = self._broker.entry(each.outgoing, look)
            if alone is not None:
                singles.setdefault((each.account, key), []).append((each, entry))
            else:
                pushes.append((Push(each.account, each.group.offsets, key, [entry]), [each]))
        for (account, key), some in singles.items():
            some.sort(key=lambda one: one[0].group.offsets)
            offsets = [one.group.offsets[0] for one, _ in some]
            pushes.append((Push(account, offsets, key, [entry for _, entry in some]), [one for one, _ in some]))
        return pushes

    def _take_back(self, packed: PackedMessage, before: bytes, free: Sequence[int]) -> None:
        """Another bridge was there first, for some of it: the rest goes out as a batch of its own.

        Parameters:
            before: the fates that its deliveries had.
            free: those that are still open.
        """
        partition, handler = packed.partition, packed.group.handler
        by_fate: dict[Fate, list[int]] = {}
        for offset, fate in zip(packed.group.offsets, before, strict=True):
            # What is no fate stays as it is, and the next look at the ledger says so.
            if offset not in free and fate in OVERWRITES:
                by_fate.setdefault(Fate(fate), []).append(offset)
        for fate, offsets in by_fate.items():
            self._marks.add(partition.settle(handler, offsets, fate))
        if free:
            partition.give_back(handler, list(free))

    def _note(self, packed: Sequence[PackedMessage]) -> None:
        counts: dict[tuple[str, str], int] = {}
        for each in packed:
            each.partition.handed(each.group.handler, each.group.offsets)
            key = (each.partition.topic, each.group.handler)
            counts[key] = counts.get(key, 0) + len(each.group.offsets)
        for (topic, handler), count in counts.items():
            self._metrics.handed_off.labels(topic, handler).inc(count)
            self._replays.handed(topic, handler, count)
        for handler in {each.group.handler for each in packed}:
            own = [each for each in packed if each.group.handler == handler]
            deliveries = sum(len(each.group.offsets) for each in own)
            self._sizes.handed(handler, len(own), deliveries, sum(each.size for each in own))
        for each in packed:
            if not each.parked:
                self._sizes.went_out(each.group.handler, each.account, each.group.offsets)
            self._shares.handed(each.group.handler, each.account, each.group.offsets, parked=each.parked)


def _find_suspended(partition: Partition, suspended: SuspendedHandlers, parked: bool) -> Iterable[str]:
    """The handlers of which nothing of a partition goes out. In a retry topic each record is of one handler alone: what
    is due while its handler may not run would fill the broker, however many there are.
    """
    return suspended.parked if parked else suspended.of(partition.handlers)


def _count_ready(partitions: Iterable[Partition]) -> dict[str, int]:
    """By handler, what is ready."""
    ready: dict[str, int] = {}
    for partition in partitions:
        for handler, count in partition.ready.items():
            ready[handler] = ready.get(handler, 0) + count
    return ready
