"""A partition of a retry or replay topic: its held records, what is due, which offset is safe to commit.

Each record is a delivery of the handler that it names. It has a fate of its own at the coordinates at which it lies;
the fate of the delivery is that of the source record, which stays parked meanwhile.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from bridge.formats.delivery_row import measure_record
from bridge.formats.pause_reasons import PauseReason
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.handler_routes import Handler
from bridge.kafka.clients import Record
from bridge.ledger import RETRY_RECORD, Fate, Mark
from bridge.partitions.clock_skew_limit import ClockSkewLimit
from bridge.partitions.due_queue import AHEAD, DueQueue, HeldRecord, ReadAhead, ReadAheadBudget
from bridge.partitions.ordering import DeliveryGroup, Portions
from bridge.partitions.partition import Partition
from bridge.partitions.slow_handlers import SlowHandlers
from bridge.settings import TopicSettings

#: Records that were read and not taken in, from which on reading pauses; it goes on at half, before none are left:
#: Kafka's answer takes a while.
MOST_UNTAKEN: Final = 1_000
#: Nothing was done with these: a record may lie where the ledger has a gap, and what was none of ours may be looked at.
_OPEN_FATES: Final = (Fate.OPEN, Fate.GAP)


@dataclass(frozen=True, slots=True)
class RetryTopicOwner:
    """Whose records lie in a partition.

    Attributes:
        source: the topic that they are of.
        chosen: the settings of that.
        group, cluster: a record of another group is left alone.
        delay: seconds for which the topic holds its records; 0: it is a replay topic.
    """

    source: str
    chosen: TopicSettings
    group: str
    cluster: str
    delay: int = 0


class RetryPartition(Partition):
    """The state of a partition of a retry or replay topic, all of it made anew from Kafka and the ledger after a crash.

    Parameters:
        first: the offset at which reading begins.
        budget: what it may hold together with others.
        clock: that of Redis as far as it is known; nothing goes out before the time in its record by it.

    Attributes:
        rewind: from where it is to be read again, as what was read there is not held; `None`: nowhere.
        more: how many records were read of it that it has not taken in.
        replays: whether its topic is one of what a person sent back.
        strange: how many of its records were none of this group's since that was last asked.
        refusals: limits the log lines about records that name no source record.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        first: int,
        of: RetryTopicOwner,
        topic_id: str,
        window: int,
        budget: ReadAheadBudget,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Its order is held by the source's partition, and behind what a delivery was parked the worker looks at
        # (`Delivery.after`): here each record stands for itself.
        own = of.chosen.model_copy(update={"order": None, "sequence": ()})
        super().__init__(topic, number, first, [Handler(RETRY_RECORD, (topic,), "", 1, 0)], own, topic_id, window)
        self.handlers = ()
        self.source, self.order = of.source, of.chosen.order
        self.account = self.accounts[RETRY_RECORD]
        self.replays = not of.delay
        self.rewind: int | None = None
        self.strange = 0
        self.refusals = RefusalLog()
        self.more = 0
        self._group, self._cluster, self._clock = of.group, of.cluster, clock
        self._clocks = ClockSkewLimit(f"{topic}-{number}", of.delay)
        self._due, self._passing = ReadAhead(budget), SlowHandlers()
        #: Without a ledger nobody would know of what is read again that it went out.
        self._may_pass = False
        self._held: dict[int, HeldRecord] = {}
        self._ripe = DueQueue()
        #: By work and number, the offset of the record that is held. One that was handed off counts no more: where
        #: Redis was wiped, or a person asks for it, a delivery begins anew, and is parked under the same number again.
        self._offsets: dict[tuple[str, int], int] = {}

    # What comes in

    def receive(self, records: Sequence[Record], found: dict[str, bytes] | None) -> list[Mark]:
        """Take in records as far as they are due soon; from `rewind` on they are to be read again later."""
        known = found[RETRY_RECORD] if found is not None else bytes(len(records))
        self._may_pass = found is not None
        passed: set[int] = set()
        read_: list[tuple[Record, RetryRecord | None]] = []
        for record, fate in zip(records, known, strict=True):
            parked = self._read(record) if fate in _OPEN_FATES else None
            if parked is not None and self._passes(record, parked):
                passed.add(record.offset() or 0)
            elif parked is not None and not self._fits(record, parked):
                self.rewind = record.offset() or 0
                break
            read_.append((record, parked))
        offsets = [record.offset() or 0 for record, _ in read_]
        marks = [Mark(self.account, gap, Fate.GAP) for gap in self.offsets.read(offsets) if found is not None]
        if found is not None and offsets:
            self.offsets.learn(RETRY_RECORD, offsets, known[: len(offsets)])
        return marks + self._leave_out(read_, known, passed)

    def _read(self, record: Record) -> RetryRecord | None:
        parked = read_retry_record(record, self._cluster, self.topic_id)
        # Nobody but its own bridges and operators writes to the topic of a source, and then of that source alone.
        if parked is None or parked.group != self._group or parked.delivery.message.topic != self.source:
            return None
        return self._clocks.in_time(parked, record, self._clock())

    def _fits(self, record: Record, parked: RetryRecord) -> bool:
        """Hold a record, unless it is the second of a delivery, or enough is held."""
        offset, delivery = record.offset() or 0, parked.delivery
        if (delivery.work, delivery.number) in self._offsets:
            return True
        held = HeldRecord(offset, parked, measure_record(record))
        if not self._due.take_in(offset, parked.due / 1000, held.size, self._clock()):
            return False
        self._held[offset] = held
        self._passing.holds(delivery.handler)
        self._offsets[delivery.work, delivery.number] = offset
        return True

    def _passes(self, record: Record, parked: RetryRecord) -> bool:
        """Whether a record is passed over: it is due, and of its handler nothing goes out."""
        offset, delivery = record.offset() or 0, parked.delivery
        if (delivery.work, delivery.number) in self._offsets or not self._passing.passes(delivery.handler):
            return False
        if parked.due / 1000 > self._clock() + AHEAD:
            return False
        self._passing.over(offset)
        return True

    def _leave_out(
        self, read_: Sequence[tuple[Record, RetryRecord | None]], known: bytes, passed: Collection[int]
    ) -> list[Mark]:
        """What is none of ours, and second records of a delivery: there is nothing to do for them."""
        gaps, twice = [], []
        for (record, parked), fate in zip(read_, known, strict=False):
            offset = record.offset() or 0
            if fate in _OPEN_FATES and parked is None:
                gaps.append(offset)
            elif parked is not None and offset not in self._held and offset not in passed:
                twice.append(offset)
        self.strange += len(gaps)
        for offsets, fate in ((gaps, Fate.GAP), (twice, Fate.DONE)):
            if offsets:
                self.offsets.mark(RETRY_RECORD, offsets, fate)
        return [Mark(self.account, some, fate) for some, fate in ((gaps, Fate.GAP), (twice, Fate.DONE)) if some]

    def _let_go(self, offset: int) -> HeldRecord | None:
        """It is held no more."""
        if (held := self._held.pop(offset, None)) is not None:
            self._due.gone(held.size)
            del self._offsets[held.delivery.work, held.delivery.number]
        return held

    # What goes out

    @property
    def next_due(self) -> float | None:
        """When the next of what is held is due, by its clock."""
        return self._due.next

    @property
    def late(self) -> float:
        """Seconds for which the first has been due that is held and not handed off."""
        self._ripen()
        since = self._ripe.since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    @property
    def ripe(self) -> bool:
        """Whether anything was found to be due."""
        return bool(self._ripe)

    @property
    def ready(self) -> dict[str, int]:
        """For each handler, how many deliveries are due."""
        self._ripen()
        return self._ripe.counts

    def _ripen(self) -> None:
        for offset in self._due.ripe(self._clock()):
            if (held := self._held.get(offset)) is not None:
                self._ripe.add(held)

    def take(self, portions: Portions = MappingProxyType({})) -> list[tuple[DeliveryGroup, list[Any]]]:
        """What is due and may go out, each with what is held of it."""
        self._ripen()
        return self._ripe.take(portions)

    def give_back(self, handler: str, offsets: Sequence[int]) -> None:
        """Deliveries that were taken and not handed out keep their place: they are due."""
        self._ripe.give_back([self._held[offset] for offset in offsets])

    def handed(self, handler: str, offsets: Sequence[int]) -> None:
        """The broker has these deliveries."""
        self._passing.went(handler, len(offsets))
        self._ended(offsets, Fate.HANDED)

    def settle(self, handler: str, offsets: Sequence[int], fate: Fate) -> list[Mark]:
        """Note the fate of these records that the ledger has told of."""
        self._ended(offsets, fate)
        return []

    def _ended(self, offsets: Sequence[int], fate: Fate) -> None:
        self.offsets.mark(RETRY_RECORD, offsets, fate)
        for offset in offsets:
            self._let_go(offset)

    # What makes room for others

    def _make_room(self) -> None:
        """Hold little of handlers of which little goes out; read again what was passed over as it has gone out."""
        ready, now = self.ready, self._clock()
        self._passing.see(ready, now)
        if self._due.full and self._may_pass:
            for handler, stay in list(self._passing.slow(ready, now)):
                self._release(handler, stay)
        if self.rewind is None:
            self.rewind = self._passing.back(self.ready, now)

    def _release(self, handler: str, stay: int) -> None:
        kept, gone = self._ripe.leave_few(handler, stay)
        for held in gone:
            self._let_go(held.offset)
            self._passing.over(held.offset)
        self._passing.keeps(handler, kept)

    # How it ends

    def saw(self, handler: str, first: int, found: bytes) -> tuple[list[Mark], int | None, int]:
        """Take in what the ledger says of the window (Partition.saw)."""
        back = [change for change in self.offsets.saw(RETRY_RECORD, first, found) if change.went_back]
        undone = sum(len(change.offsets) for change in back if change.before == Fate.DONE)
        return [], min((change.offsets.start for change in back), default=None), undone

    def oldest(self) -> list[tuple[str, int]]:
        """Its order is its source's."""
        return []

    def pressure(self) -> PauseReason | None:
        """Return why this partition must pause, or `None`."""
        self._make_room()
        if self._is_wide:
            self._paused = PauseReason.WINDOW_FULL
        elif not self._due.may_read(self._clock()):
            self._paused = PauseReason.SHARE_USED if self._due.full else PauseReason.NOT_DUE
        elif self.more > (MOST_UNTAKEN // 2 if self._paused else MOST_UNTAKEN):
            self._paused = PauseReason.SHARE_USED
        else:
            self._paused = None
        return self._paused

    def close(self) -> None:
        """Nothing of it is held any longer: another bridge has it now, or it begins anew."""
        self._due.forget()


#: Seconds between two lines, and how many times more than the last line told bring the next one before that.
LOG_EVERY: Final = 60.0
TIMES_MORE: Final = 10


class RefusalLog:
    """Counts refused records of one partition, and says when a line about them is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold = self._told = 0
        self._told_at = float("-inf")

    def count(self, number: int) -> int:
        """Count refused records; return how many a line that is due now tells of, 0 while none is due."""
        self._untold += number
        is_due = self._clock() - self._told_at >= LOG_EVERY or self._untold >= TIMES_MORE * self._told
        if not number or not is_due:
            return 0
        self._told, self._untold, self._told_at = self._untold, 0, self._clock()
        return self._told
