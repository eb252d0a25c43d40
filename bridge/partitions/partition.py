"""A partition of a source topic: its records, what may be handed out, what may be committed."""

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final

from bridge.formats.delivery_row import measure_record
from bridge.formats.pause_reasons import PauseReason
from bridge.handler_routes import Handler
from bridge.kafka.clients import Record
from bridge.ledger import Account, Fate, Mark
from bridge.partitions.ordering import (
    DeliveryGroup,
    DeliveryQueue,
    LongestKeyQueue,
    Order,
    Portions,
    SkippedDeliveries,
    make_delivery_queue,
)
from bridge.partitions.safe_offset import FateChange, OffsetTracker
from bridge.settings import TopicSettings

#: Offsets read and not settled, messages waiting behind their key, and bytes of what is held, above which a partition
#: pauses; it goes on at half.
WINDOW: Final = 100_000
WAITING: Final = 10_000
#: Waiting deliveries of one key, and half of all that wait, from which on it is a hot key.
HOT_FROM: Final = 100
HELD_BYTES: Final = 100_000_000


class Partition:
    """The state of one partition, all of it made anew from Kafka and the ledger after a crash.

    Parameters:
        first: the offset at which reading begins.
        handlers: the handlers of its topic.
        chosen: the settings of its topic.
        topic_id: tells a topic from one of the same name that was deleted before.
        window: offsets from the first that is not settled to the last that was read, above which it pauses.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        first: int,
        handlers: Sequence[Handler],
        chosen: TopicSettings,
        topic_id: str,
        window: int = WINDOW,
    ) -> None:
        self.topic, self.number, self.topic_id = topic, number, topic_id
        self.place = (topic, number)
        #: The topic whose handlers' deliveries lie here.
        self.source = topic
        self.chosen = chosen
        self.handlers = tuple(handlers)
        self.accounts = {h.name: Account(h.name, topic, topic_id, number) for h in handlers}
        self.offsets = OffsetTracker(first, self.accounts, chosen.commit, ordered=chosen.order is not None)
        self._turns = _make_queues(handlers, chosen)
        self._of = {name: each for each in self._turns for name in each.handlers}
        #: Whether records are needed after they were handed out: by the next handler of a sequence.
        self._keeps = bool(chosen.sequence)
        self._window = window
        self._records: dict[int, Record] = {}
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        self._wanted: dict[int, int] = {}
        #: As far as the ledger was told that all is safe.
        self.reached = -1
        self._paused: PauseReason | None = None

    @property
    def watched(self) -> bool:
        """Whether the fates of what was handed out must be looked at: for the commit, or for what waits behind it."""
        return (self.chosen.commit == "completion" or self._keeps) and self.offsets.size > 0

    def pass_to(self, offset: int) -> list[Mark]:
        """Kafka's client has read to there, and no record lies below that was not taken in; return what the ledger must
        be told: of a transaction's marker at the end nothing else tells.
        """
        gap = self.offsets.pass_to(offset)
        return [Mark(account, gap, Fate.GAP) for account in self.accounts.values()] if gap else []

    def receive(self, records: Sequence[Record], found: dict[str, bytes] | None) -> list[Mark]:
        """Take in records, ascending, and what the ledger says of their offsets; return what it must be told.

        Parameters:
            found: per handler, the fates of these offsets, one byte each; `None` without a ledger.
        """
        offsets = [record.offset() or 0 for record in records]
        marks = [
            Mark(account, gap, Fate.GAP)
            for gap in self.offsets.read(offsets)
            for account in self.accounts.values()
            if found is not None
        ]
        if found is not None:
            for name, fates in found.items():
                self.offsets.learn(name, offsets, fates)
        keys = [record.key() for record in records]
        for each in self._turns:
            fates_of = [self.offsets.fates(name, offsets) for name in each.handlers]
            marks += self._doomed(each.add(offsets, keys, fates_of))
        for record, offset in zip(records, offsets, strict=True):
            self._hold(offset, record)
        if len(self.handlers) > 1 and not self._keeps:
            self._wanted.update(dict.fromkeys(offsets, len(self.handlers)))
        self._forget_settled(offsets)
        return marks

    @property
    def ready(self) -> dict[str, int]:
        """For each handler, how many deliveries may be handed out now that several processes could share."""
        return {name: each.ready for each in self._turns if each.waiting for name in each.handlers}

    @property
    def waiting(self) -> dict[str, int]:
        """For each handler, how many deliveries were read and are not handed out, whatever they wait for."""
        return {name: each.waiting for each in self._turns for name in each.handlers}

    def take(self, portions: Portions = MappingProxyType({})) -> list[tuple[DeliveryGroup, list[Record]]]:
        """What may be handed out now, with its records.

        Parameters:
            portions: of handlers of which not all may be taken, or whose batch size was not given.
        """
        return [
            (group, [self._records[offset] for offset in group.offsets])
            for each in self._turns
            if each.waiting
            for group in each.take(portions)
        ]

    def give_back(self, handler: str, offsets: Sequence[int]) -> None:
        """Deliveries that were taken and not handed out keep their place."""
        keys = [self._records[offset].key() for offset in offsets]
        self._of[handler].give_back(handler, offsets, keys)

    def handed(self, handler: str, offsets: Sequence[int]) -> None:
        """The broker has these deliveries."""
        self.offsets.mark(handler, offsets, Fate.HANDED)
        if not self._keeps:
            self._drop(offsets)

    def saw(self, handler: str, first: int, found: bytes) -> tuple[list[Mark], int | None, int]:
        """Take in what the ledger says of the window.

        Returns:
            what it must be told, the offset from which the partition must be read again (fates were lost, or
            what was stuck is open again), and how many deliveries that were done are not any more.
        """
        marks: list[Mark] = []
        back: list[FateChange] = []
        undone = 0
        for change in self.offsets.saw(handler, first, found):
            if change.went_back:
                back.append(change)
                undone += len(change.offsets) if change.before == Fate.DONE else 0
            else:
                marks += self._doomed(self._of[handler].settle(handler, change.offsets, change.fate))
        return marks, min((change.offsets.start for change in back), default=None), undone

    def settle(self, handler: str, offsets: Sequence[int], fate: Fate) -> list[Mark]:
        """Note a fate that the ledger has told of."""
        self.offsets.mark(handler, offsets, fate)
        if not self._keeps:
            self._drop(offsets)
        return self._doomed(self._of[handler].settle(handler, offsets, fate))

    def safe(self) -> int:
        """The offset to commit; what lies below it is forgotten."""
        safe = self.offsets.safe()
        if self._keeps and self._records:
            for offset in [offset for offset in self._records if offset < safe]:
                self._forget(offset)
        return safe

    def oldest(self) -> list[tuple[str, int]]:
        """Where an order is asked for: handler and offset of the oldest delivery in flight, which others wait for."""
        if self.chosen.order is None:
            return []
        found = ((name, self.offsets.oldest(name, Fate.HANDED)) for name in self.accounts)
        return [(name, offset) for name, offset in found if offset is not None]

    def hot_keys(self) -> list[tuple[str, LongestKeyQueue]]:
        """Of each handler the key that most of its waiting deliveries have, if those are many."""
        longest = [
            (each.handlers[0], each.longest_lane(), each.waiting) for each in self._turns if each.waiting >= HOT_FROM
        ]
        return [
            (name, lane)
            for name, lane, waiting in longest
            if lane is not None and lane.waiting >= max(HOT_FROM, waiting / 2)
        ]

    def pressure(self) -> PauseReason | None:
        """Return why this partition must pause, or `None`."""
        factor = self._factor
        waiting = sum(each.waiting for each in self._turns)
        if waiting > WAITING * factor:
            ordered = self.chosen.order is not None or self._keeps
            self._paused = PauseReason.KEYS_BUSY if ordered else PauseReason.QUEUE_SATISFIED
        elif self._bytes > HELD_BYTES * factor:
            self._paused = PauseReason.MEMORY_FULL
        elif self._is_wide:
            self._paused = PauseReason.WINDOW_FULL
        else:
            self._paused = None
        return self._paused

    @property
    def _factor(self) -> float:
        """How much of each bound it may reach: half of it once it has paused."""
        return 0.5 if self._paused else 1.0

    @property
    def _is_wide(self) -> bool:
        """Whether too much was read since the first that is not settled."""
        return self.chosen.commit == "completion" and self.offsets.size > self._window * self._factor

    def close(self) -> None:
        """It is another bridge's now, or begins anew."""

    def _hold(self, offset: int, record: Record) -> None:
        self._forget(offset)
        self._records[offset] = record
        self._sizes[offset] = measure_record(record)
        self._bytes += self._sizes[offset]

    def _forget(self, offset: int) -> None:
        if self._records.pop(offset, None) is not None:
            self._bytes -= self._sizes.pop(offset)

    def _doomed(self, doomed: Iterable[SkippedDeliveries]) -> list[Mark]:
        """Handlers that a `sequence` never reaches end as the one before them did."""
        return [Mark(self.accounts[each.handler], each.offsets, each.fate) for each in doomed]

    def _forget_settled(self, offsets: Sequence[int]) -> None:
        """Records that nobody waits for: the ledger has all their deliveries already."""
        if self._keeps:
            return
        waiting = [set(self.offsets.still_open(name, offsets)) for name in self.accounts]
        if len(waiting) == 1 and len(waiting[0]) == len(offsets):
            return
        for offset in offsets:
            count = sum(offset in some for some in waiting)
            if count == 0:
                self._forget(offset)
                self._wanted.pop(offset, None)
            elif len(self.handlers) > 1:
                self._wanted[offset] = count

    def _drop(self, offsets: Sequence[int]) -> None:
        if len(self.handlers) == 1:
            for offset in offsets:
                self._forget(offset)
            return
        for offset in offsets:
            left = self._wanted.get(offset, 1) - 1
            if left:
                self._wanted[offset] = left
            else:
                self._wanted.pop(offset, None)
                self._forget(offset)


def _make_queues(handlers: Sequence[Handler], chosen: TopicSettings) -> list[DeliveryQueue]:
    """Handlers of the sequence take turns together; each other handler has its own."""
    order: Order = chosen.order or "none"
    by_name = {handler.name: handler for handler in handlers}
    sequence = [name for name in chosen.sequence if name in by_name]
    alone = [name for name in by_name if name not in sequence]
    groups = [*([sequence] if sequence else []), *([name] for name in alone)]
    return [make_delivery_queue(order, names, [_most_in_group(by_name[name]) for name in names]) for names in groups]


def _most_in_group(handler: Handler) -> int:
    """Where no number was given, what is taken without a portion goes one by one."""
    return 1 if handler.batch == "auto" else handler.batch
