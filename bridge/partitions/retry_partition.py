"""A partition of a retry or replay topic: its held records, what is due, which offset is safe to commit.

Each record is a delivery of the handler that it names. It has a fate of its own at its coordinates in this topic. The
fate of the delivery is that of the source record, which stays parked meanwhile. How far records are read ahead, and
which have become due, is decided in retry_read_ahead.py.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final

from bridge.formats.delivery_row import measure_record
from bridge.formats.pause_reasons import PauseReason
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.handler_routes import Handler
from bridge.kafka.clients import Record
from bridge.ledger import RETRY_RECORD, Fate, Mark
from bridge.partitions.due_queue import DueQueue, HeldRecord
from bridge.partitions.due_time_limit import ClockSkewLimit
from bridge.partitions.ordering import DeliveryGroup, Portions
from bridge.partitions.partition import Partition
from bridge.partitions.partition_limits import MOST_UNTAKEN, exceeds_limit
from bridge.partitions.retry_read_ahead import AHEAD, ReadAhead, ReadAheadBudget
from bridge.partitions.slow_handlers import SlowHandlers
from bridge.settings import TopicSettings

#: The fates of records to take in: a record may lie where the ledger has a gap.
_OPEN_FATES: Final = (Fate.OPEN, Fate.GAP)


@dataclass(frozen=True, slots=True)
class RetryTopicOwner:
    """The source topic and the group whose records a retry or replay topic holds.

    Attributes:
        source: the source topic.
        chosen: the settings of the source topic.
        group, cluster: a record of another group is left alone.
        delay: seconds for which the topic holds its records; 0: it is a replay topic.
    """

    source: str
    chosen: TopicSettings
    group: str
    cluster: str
    delay: int = 0


class RetryPartition(Partition):
    """The state of a partition of a retry or replay topic, built anew from Kafka and the ledger after a crash.

    Parameters:
        first: the offset at which reading begins.
        budget: the memory that all retry partitions share.
        clock: Redis's clock, as far as it is known: a record goes out when it is due by this clock.

    Attributes:
        replays: whether it is a partition of a replay topic.
        refusals: limits the log lines about records that name no source record.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        first: int,
        owner: RetryTopicOwner,
        topic_id: str,
        window: int,
        budget: ReadAheadBudget,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # The source's partition keeps the order, and the worker checks the delivery that one was parked behind
        # (`Delivery.after`): here no record waits for another.
        own = owner.chosen.model_copy(update={"order": None, "sequence": ()})
        super().__init__(topic, number, first, [Handler(RETRY_RECORD, (topic,), "", 1, 0)], own, topic_id, window)
        self.handlers = ()
        self.source, self.order = owner.source, owner.chosen.order
        self.account = self.accounts[RETRY_RECORD]
        self.replays = not owner.delay
        self._rewind: int | None = None
        self._strange = 0
        self.refusals = RefusalLog()
        self._untaken = 0
        self._group, self._cluster, self._clock = owner.group, owner.cluster, clock
        self._skew_limit = ClockSkewLimit(f"{topic}-{number}", owner.delay)
        self._read_ahead, self._slow_handlers = ReadAhead(budget), SlowHandlers()
        #: Without a ledger nothing tells that a record which is read again went out before.
        self._may_pass = False
        self._held: dict[int, HeldRecord] = {}
        self._due_queue = DueQueue()
        #: By work and number, the offset of the held record. A handed-off one counts no more: after a wipe of Redis, or
        #: if a person asks for it, a delivery starts anew and is parked under the same number again.
        self._offsets: dict[tuple[str, int], int] = {}

    # What comes in

    @property
    def idle(self) -> bool:
        """Return whether it holds nothing, has nothing to read again, and is not paused."""
        return (
            super().idle
            and not (self._held or self._untaken or self._strange or self._due_queue)
            and self._rewind is None
            and self._read_ahead.idle
            and self._slow_handlers.idle
        )

    @property
    def rewind(self) -> int | None:
        """Return the offset from which to read again, because the records there are not held; `None`: nowhere."""
        return self._rewind

    def end_rewind(self) -> None:
        """Note that the consumer reads from the rewind's offset now."""
        self._rewind = None

    def note_untaken(self, number: int) -> None:
        """Note how many records were read and not taken in."""
        self._untaken = number

    def note_strange(self, number: int) -> None:
        """Note records that are no deliveries of this group."""
        self._strange += number

    def take_strange_count(self) -> int:
        """Return how many records were no deliveries of this group since the last call."""
        number, self._strange = self._strange, 0
        return number

    def receive(self, records: Sequence[Record], found: dict[str, bytes] | None) -> list[Mark]:
        """Take in the records that are due soon; those from `rewind` on are read again later."""
        known = found[RETRY_RECORD] if found is not None else bytes(len(records))
        self._may_pass = found is not None
        passed: set[int] = set()
        received: list[tuple[Record, RetryRecord | None]] = []
        for record, fate in zip(records, known, strict=True):
            parked = self._read(record) if fate in _OPEN_FATES else None
            if parked is not None and self._passes(record, parked):
                passed.add(record.offset() or 0)
            elif parked is not None and not self._fits(record, parked):
                self._rewind = record.offset() or 0
                break
            received.append((record, parked))
        offsets = [record.offset() or 0 for record, _ in received]
        marks = [Mark(self.account, gap, Fate.GAP) for gap in self.offsets.read(offsets) if found is not None]
        if found is not None and offsets:
            self.offsets.learn(RETRY_RECORD, offsets, known[: len(offsets)])
        return marks + self._leave_out(received, known, passed)

    def _read(self, record: Record) -> RetryRecord | None:
        parked = read_retry_record(record, self._cluster, self.topic_id)
        # Only bridges and operators of the group write to this topic, and only deliveries of its source.
        if parked is None or parked.group != self._group or parked.delivery.message.topic != self.source:
            return None
        return self._skew_limit.limit(parked, record, self._clock())

    def _fits(self, record: Record, parked: RetryRecord) -> bool:
        """Hold a record unless it is a duplicate; return False if there is no room for it."""
        offset, delivery = record.offset() or 0, parked.delivery
        if (delivery.work, delivery.number) in self._offsets:
            return True
        held = HeldRecord(offset, parked, measure_record(record))
        if not self._read_ahead.take_in(offset, parked.due / 1000, held.size, self._clock()):
            return False
        self._held[offset] = held
        self._slow_handlers.note_held(delivery.handler)
        self._offsets[delivery.work, delivery.number] = offset
        return True

    def _passes(self, record: Record, parked: RetryRecord) -> bool:
        """Pass over a record that is due if nothing of its handler goes out; return whether it was passed over."""
        offset, delivery = record.offset() or 0, parked.delivery
        if (delivery.work, delivery.number) in self._offsets or not self._slow_handlers.passes_over(delivery.handler):
            return False
        if parked.due / 1000 > self._clock() + AHEAD:
            return False
        self._slow_handlers.pass_over(offset)
        return True

    def _leave_out(
        self, received: Sequence[tuple[Record, RetryRecord | None]], known: bytes, passed: Collection[int]
    ) -> list[Mark]:
        """Mark the records that are no deliveries of this group, and duplicates of a delivery; return the marks."""
        gaps, duplicates = [], []
        for (record, parked), fate in zip(received, known, strict=False):
            offset = record.offset() or 0
            if fate in _OPEN_FATES and parked is None:
                gaps.append(offset)
            elif parked is not None and offset not in self._held and offset not in passed:
                duplicates.append(offset)
        self.note_strange(len(gaps))
        for offsets, fate in ((gaps, Fate.GAP), (duplicates, Fate.DONE)):
            if offsets:
                self.offsets.mark(RETRY_RECORD, offsets, fate)
        return [
            Mark(self.account, offsets, fate)
            for offsets, fate in ((gaps, Fate.GAP), (duplicates, Fate.DONE))
            if offsets
        ]

    def _let_go(self, offset: int) -> HeldRecord | None:
        """Release a record from memory, and return it."""
        if (held := self._held.pop(offset, None)) is not None:
            self._read_ahead.release(held.size)
            del self._offsets[held.delivery.work, held.delivery.number]
        return held

    # What goes out

    @property
    def next_due(self) -> float | None:
        """Return when the next held record is due, by Redis's clock."""
        return self._read_ahead.next

    def measure_late(self, halted: Collection[str] = frozenset()) -> float:
        """Return for how many seconds the first held record has been due that is of no halted handler."""
        self._ripen()
        since = self._due_queue.find_first_due(halted)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    @property
    def ripe(self) -> bool:
        """Return whether any held record was found to be due."""
        return bool(self._due_queue)

    @property
    def ready(self) -> dict[str, int]:
        """Return, by handler, how many deliveries are due."""
        self._ripen()
        return self._due_queue.counts

    def _ripen(self) -> None:
        for offset in self._read_ahead.pop_due(self._clock()):
            if (held := self._held.get(offset)) is not None:
                self._due_queue.add(held)

    def take(self, portions: Portions = MappingProxyType({})) -> list[tuple[DeliveryGroup, list[Any]]]:
        """Take the due deliveries that may go out, each with its held records."""
        self._ripen()
        return self._due_queue.take(portions)

    def give_back(self, handler: str, offsets: Sequence[int]) -> None:
        """Take back deliveries that were not handed out: they are still due."""
        self._due_queue.give_back([self._held[offset] for offset in offsets])

    def note_handed(self, handler: str, offsets: Sequence[int]) -> None:
        """Note that the broker has these deliveries."""
        self._slow_handlers.note_handed(handler, len(offsets))
        self._ended(offsets, Fate.HANDED)

    def settle(self, handler: str, offsets: Sequence[int], fate: Fate) -> list[Mark]:
        """Note the fate that the ledger has for these records."""
        self._ended(offsets, fate)
        return []

    def _ended(self, offsets: Sequence[int], fate: Fate) -> None:
        self.offsets.mark(RETRY_RECORD, offsets, fate)
        for offset in offsets:
            self._let_go(offset)

    # What makes room for others

    def _make_room(self) -> None:
        """Hold few records of slow handlers, and read passed-over ones again when those have gone out."""
        ready, now = self.ready, self._clock()
        self._slow_handlers.note_due(ready, now)
        if self._read_ahead.full and self._may_pass:
            for handler, stay in list(self._slow_handlers.find_slow(ready, now)):
                self._release(handler, stay)
        if self._rewind is None:
            self._rewind = self._slow_handlers.take_reread_offset(self.ready, now)

    def _release(self, handler: str, stay: int) -> None:
        kept, dropped = self._due_queue.leave_few(handler, stay)
        for held in dropped:
            self._let_go(held.offset)
            self._slow_handlers.pass_over(held.offset)
        self._slow_handlers.keep(handler, kept)

    # How it ends

    def take_in_fates(self, handler: str, first: int, found: bytes) -> tuple[list[Mark], int | None, int]:
        """Take in the ledger's fates of the window (Partition.take_in_fates)."""
        back = [change for change in self.offsets.take_in_fates(RETRY_RECORD, first, found) if change.went_back]
        undone = sum(len(change.offsets) for change in back if change.before == Fate.DONE)
        return [], min((change.offsets.start for change in back), default=None), undone

    def oldest(self) -> list[tuple[str, int]]:
        """Return nothing: the source's partition keeps the order."""
        return []

    def pressure(self, share: float = inf) -> PauseReason | None:
        """Return why this partition must pause, or `None`; its read-ahead has limits of its own, whatever the share."""
        self._make_room()
        if self._is_window_full:
            self._paused = PauseReason.WINDOW_FULL
        elif not self._read_ahead.may_read(self._clock()):
            self._paused = PauseReason.SHARE_USED if self._read_ahead.full else PauseReason.NOT_DUE
        elif exceeds_limit(self._untaken, MOST_UNTAKEN, paused=self._paused is not None):
            self._paused = PauseReason.SHARE_USED
        else:
            self._paused = None
        return self._paused

    def is_pressed_without(self, halted: frozenset[str], halted_keys: Mapping[str, Collection[bytes]]) -> bool:
        """Return whether anything but due deliveries of halted handlers makes it pause."""
        due = {name for name, count in self._due_queue.counts.items() if count}
        return self._paused is PauseReason.NOT_DUE or not due or not due <= halted

    def close(self) -> None:
        """Release all records: another bridge has the partition now, or it starts anew."""
        self._read_ahead.release_all()


#: Seconds between two lines, and the multiple of the last line's count that brings the next one earlier.
LOG_EVERY: Final = 60.0
TIMES_MORE: Final = 10


class RefusalLog:
    """The rate limit of the log lines about refused records of one partition."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold = self._told = 0
        self._told_at = float("-inf")

    def count(self, number: int) -> int:
        """Count refused records; return how many the line that is due now reports, or 0 if none is due."""
        self._untold += number
        is_due = self._clock() - self._told_at >= LOG_EVERY or self._untold >= TIMES_MORE * self._told
        if not number or not is_due:
            return 0
        self._told, self._untold, self._told_at = self._untold, 0, self._clock()
        return self._told
