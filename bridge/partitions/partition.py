"""A partition of a source topic: its records, the deliveries to hand out, the offset to commit."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

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
    OrderedQueue,
    Portions,
    SkippedDeliveries,
    make_delivery_queue,
)
from bridge.partitions.partition_limits import choose_pause_reason, is_window_full
from bridge.partitions.safe_offset import FateChange, OffsetTracker
from bridge.settings import DEFAULT_WINDOW, TopicSettings

#: Deliveries that wait for one key from which on it is a hot key, if they are half of all waiting ones.
HOT_FROM: Final = 100


#: Most dead deliveries of a handler and partition that are looked at for what waits behind them.
MOST_DEAD: Final = 100


class DeadHold(NamedTuple):
    """The dead deliveries of a handler that hold those behind them in their order.

    Attributes:
        offset: the lowest of them.
        dead: how many they are.
        behind: deliveries that were read and wait behind the first of them (`MOST_DEAD`), each counted once.
    """

    topic: str
    partition: int
    handler: str
    offset: int
    dead: int
    behind: int


class Partition:
    """The state of one partition, built anew from Kafka and the ledger after a crash.

    Parameters:
        first: the offset at which reading begins.
        handlers: the handlers of its topic.
        chosen: the settings of its topic.
        topic_id: tells a topic from a deleted one of the same name.
        window: offsets from the first that is not settled to the last read, above which the partition pauses.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        first: int,
        handlers: Sequence[Handler],
        chosen: TopicSettings,
        topic_id: str,
        window: int = DEFAULT_WINDOW,
    ) -> None:
        self.topic, self.number, self.topic_id = topic, number, topic_id
        self.place = (topic, number)
        #: The topic whose handlers run these deliveries.
        self.source = topic
        self.chosen = chosen
        self.handlers = tuple(handlers)
        self.accounts = {h.name: Account(h.name, topic, topic_id, number) for h in handlers}
        self.offsets = OffsetTracker(
            first, self.accounts, chosen.commit, ordered=chosen.order is not None, holds_dead=chosen.holds_dead
        )
        self._queues = _make_queues(handlers, chosen)
        self._queue_of = {name: queue for queue in self._queues for name in queue.handlers}
        #: Whether records are needed after they were handed out: by the next handler of a sequence.
        self._keeps = bool(chosen.sequence)
        self._window = window
        self._records: dict[int, Record] = {}
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        self._wanted: dict[int, int] = {}
        self._reached = -1
        self._paused: PauseReason | None = None
        self._share = inf

    @property
    def reached(self) -> int:
        """Return the offset up to which the ledger was told that all is safe; -1 if it was told nothing."""
        return self._reached

    def note_reached(self, offset: int) -> None:
        """Note that the ledger was told how far all is safe."""
        self._reached = offset

    @property
    def watched(self) -> bool:
        """Return whether the fates of handed deliveries must be polled: for the commit, or for those behind them."""
        return (self.chosen.commit == "completion" or self._keeps) and self.offsets.size > 0

    @property
    def awaited(self) -> bool:
        """Return whether deliveries may wait for handed ones: those must be polled often, not with each commit."""
        return self.watched and (self.chosen.order is not None or self._keeps)

    @property
    def idle(self) -> bool:
        """Return whether it holds nothing: no delivery to hand off, to watch or to wait for, and it is not paused.

        The loop leaves an idle partition alone until records of it come (`Assignment.busy`).
        """
        return (
            self._paused is None
            and not self._records
            and not self.offsets.size
            and not any(queue.waiting for queue in self._queues)
        )

    def pass_to(self, offset: int) -> list[Mark]:
        """Take the offsets below the client's position as read; return the gap marks for the ledger.

        Nothing else tells of a transaction's marker at the end of the log.
        """
        gap = self.offsets.pass_to(offset)
        return [Mark(account, gap, Fate.GAP) for account in self.accounts.values()] if gap else []

    def receive(self, records: Sequence[Record], found: dict[str, bytes] | None) -> list[Mark]:
        """Take in ascending records with the ledger's fates; return marks for the ledger.

        Parameters:
            found: by handler, the fates of these offsets, one byte each; `None` without a ledger.
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
        for queue in self._queues:
            fates_of = [self.offsets.fates(name, offsets) for name in queue.handlers]
            marks += self._mark_skipped(queue.add(offsets, keys, fates_of))
        for record, offset in zip(records, offsets, strict=True):
            self._hold(offset, record)
        if len(self.handlers) > 1 and not self._keeps:
            self._wanted.update(dict.fromkeys(offsets, len(self.handlers)))
        self._forget_settled(offsets)
        return marks

    @property
    def ready(self) -> dict[str, int]:
        """Return, by handler, how many deliveries may be handed out now that several processes could share."""
        return {name: queue.ready for queue in self._queues if queue.waiting for name in queue.handlers}

    @property
    def waiting(self) -> dict[str, int]:
        """Return, by handler, how many deliveries were read and not handed out."""
        return {name: queue.waiting for queue in self._queues for name in queue.handlers}

    def take(self, portions: Portions = MappingProxyType({})) -> list[tuple[DeliveryGroup, list[Record]]]:
        """Take the deliveries that may be handed out now, with their records.

        Parameters:
            portions: of handlers with limited room or an automatic batch size.
        """
        return [
            (group, [self._records[offset] for offset in group.offsets])
            for queue in self._queues
            if queue.waiting
            for group in queue.take(portions)
        ]

    def give_back(self, handler: str, offsets: Sequence[int]) -> None:
        """Take back deliveries that were not handed out: they keep their position."""
        keys = [self._records[offset].key() for offset in offsets]
        self._queue_of[handler].give_back(handler, offsets, keys)

    def note_handed(self, handler: str, offsets: Sequence[int]) -> None:
        """Note that the broker has these deliveries."""
        self.offsets.mark(handler, offsets, Fate.HANDED)
        if not self._keeps:
            self._drop(offsets)

    def take_in_fates(self, handler: str, first: int, found: bytes) -> tuple[list[Mark], int | None, int]:
        """Take in the ledger's fates of the window.

        Returns:
            marks for the ledger; the offset from which to read again (fates were lost, or a stuck delivery is open
            again); how many deliveries are no longer done.
        """
        marks: list[Mark] = []
        back: list[FateChange] = []
        undone = 0
        for change in self.offsets.take_in_fates(handler, first, found):
            if change.went_back:
                back.append(change)
                undone += len(change.offsets) if change.before == Fate.DONE else 0
            else:
                marks += self._mark_skipped(self._queue_of[handler].settle(handler, change.offsets, change.fate))
        return marks, min((change.offsets.start for change in back), default=None), undone

    def settle(self, handler: str, offsets: Sequence[int], fate: Fate) -> list[Mark]:
        """Note a fate that the ledger has."""
        self.offsets.mark(handler, offsets, fate)
        if not self._keeps:
            self._drop(offsets)
        return self._mark_skipped(self._queue_of[handler].settle(handler, offsets, fate))

    def safe(self) -> int:
        """Return the offset to commit, and forget what lies below it."""
        safe = self.offsets.safe()
        if self._keeps and self._records:
            for offset in [offset for offset in self._records if offset < safe]:
                self._forget(offset)
        return safe

    def oldest(self) -> list[tuple[str, int]]:
        """Return handler and offset of the oldest deliveries in flight that others wait for, in an ordered topic."""
        if self.chosen.order is None:
            return []
        found = ((name, self.offsets.oldest(name, Fate.HANDED)) for name in self.accounts)
        return [(name, offset) for name, offset in found if offset is not None]

    def hot_keys(self) -> list[tuple[str, LongestKeyQueue]]:
        """Return, by handler, the key that most of its waiting deliveries have, if those are many."""
        longest = [
            (queue.handlers[0], queue.longest_lane(), queue.waiting)
            for queue in self._queues
            if queue.waiting >= HOT_FROM
        ]
        return [
            (name, lane)
            for name, lane, waiting in longest
            if lane is not None and lane.waiting >= max(HOT_FROM, waiting / 2)
        ]

    def dead_holds(self) -> list[DeadHold]:
        """Return, by handler, the dead deliveries that hold those behind them in their order."""
        if not self.chosen.holds_dead:
            return []
        found = []
        for name in self.accounts:
            queue, offsets = self._queue_of[name], self.offsets.find(name, Fate.DEAD, MOST_DEAD)
            if offsets and isinstance(queue, OrderedQueue):
                behind = queue.count_behind(offsets)
                dead = self.offsets.count(name, Fate.DEAD)
                found.append(DeadHold(self.topic, self.number, name, offsets[0], dead, behind))
        return found

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the records that it holds."""
        return self._bytes

    def pressure(self, share: float = inf) -> PauseReason | None:
        """Return why this partition must pause, or `None`.

        Parameters:
            share: the most bytes that the limit of all partitions leaves it.
        """
        self._share = share
        self._paused = choose_pause_reason(
            sum(queue.waiting for queue in self._queues),
            self._bytes,
            share=share,
            window_full=self._is_window_full,
            ordered=self.chosen.order is not None or self._keeps,
            paused=self._paused is not None,
        )
        return self._paused

    def is_pressed_without(self, halted: frozenset[str], halted_keys: Mapping[str, Collection[bytes]]) -> bool:
        """Return whether a paused partition would pause also if nothing of it waited for a halt.

        Parameters:
            halted: handlers that are halted.
            halted_keys: the halted keys of others.
        """
        # In a sequence, the other handlers wait for the halted one.
        others = [queue for queue in self._queues if not halted.intersection(queue.handlers)]
        if self._paused is PauseReason.WINDOW_FULL:
            return self._is_window_held_by(others, halted_keys)
        waiting = sum(
            queue.waiting - (queue.count_of(_keys_of(queue, halted_keys)) if isinstance(queue, OrderedQueue) else 0)
            for queue in others
        )
        # Of the held records each waits for a handler: an estimate of those that wait for others.
        held_bytes = int(self._bytes * min(1.0, waiting / max(1, len(self._records))))
        return (
            choose_pause_reason(waiting, held_bytes, share=self._share, window_full=False, ordered=True, paused=False)
            is not None
        )

    def _is_window_held_by(self, queues: Iterable[DeliveryQueue], halted_keys: Mapping[str, Collection[bytes]]) -> bool:
        """Return whether the first offset of the window is not safe because of one of these queues."""
        first = self.offsets.find_first_unsafe()
        lowest = min(first.values(), default=-1)
        return any(
            any(first.get(name) == lowest for name in queue.handlers)
            and not _may_be_of(queue, lowest, _keys_of(queue, halted_keys))
            for queue in queues
        )

    @property
    def _is_window_full(self) -> bool:
        paused = self._paused is not None
        return is_window_full(self.offsets.size, self._window, self.chosen.commit, paused=paused)

    def close(self) -> None:
        """Release what is held: another bridge has the partition now, or it starts anew."""

    def _hold(self, offset: int, record: Record) -> None:
        self._forget(offset)
        self._records[offset] = record
        self._sizes[offset] = measure_record(record)
        self._bytes += self._sizes[offset]

    def _forget(self, offset: int) -> None:
        if self._records.pop(offset, None) is not None:
            self._bytes -= self._sizes.pop(offset)

    def _mark_skipped(self, skipped: Iterable[SkippedDeliveries]) -> list[Mark]:
        """Return the marks of handlers that a `sequence` never reaches: they end as the one before them did."""
        return [Mark(self.accounts[each.handler], each.offsets, each.fate) for each in skipped]

    def _forget_settled(self, offsets: Sequence[int]) -> None:
        """Forget the records of which the ledger calls no delivery open."""
        if self._keeps:
            return
        open_by_handler = [set(self.offsets.still_open(name, offsets)) for name in self.accounts]
        if len(open_by_handler) == 1 and len(open_by_handler[0]) == len(offsets):
            return
        for offset in offsets:
            count = sum(offset in offsets_open for offsets_open in open_by_handler)
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


def _may_be_of(queue: DeliveryQueue, offset: int, keys: Collection[bytes]) -> bool:
    """Return whether a delivery in flight has one of these keys; without an order by key nobody knows, and it may."""
    return queue.key_of(offset) in keys if isinstance(queue, OrderedQueue) else bool(keys)


def _keys_of(queue: DeliveryQueue, keys: Mapping[str, Collection[bytes]]) -> set[bytes]:
    return {key for name in queue.handlers for key in keys.get(name, ())}


def _make_queues(handlers: Sequence[Handler], chosen: TopicSettings) -> list[DeliveryQueue]:
    """Return one queue for the handlers of the sequence, and one for each other handler."""
    order: Order = chosen.order or "none"
    by_name = {handler.name: handler for handler in handlers}
    sequence = [name for name in chosen.sequence if name in by_name]
    alone = [name for name in by_name if name not in sequence]
    groups = [*([sequence] if sequence else []), *([name] for name in alone)]
    return [
        make_delivery_queue(
            order, names, [_most_in_group(by_name[name]) for name in names], holds_dead=chosen.holds_dead
        )
        for names in groups
    ]


def _most_in_group(handler: Handler) -> int:
    """Return the largest group of a handler; 1 if its batch size is automatic and no portion is given."""
    return 1 if handler.batch == "auto" else handler.batch
