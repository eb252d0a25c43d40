"""From records to the Celery broker, through the ledger: what is settled is skipped, what is open goes out once."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from bridge.handoff.broker import Handoff, Outgoing
from bridge.kafka import Record
from bridge.ledger import Account, Fate, HandOff, Ledger, Mark
from bridge.ledger.pages import PAGE
from bridge.ledger.stuck import stuck
from bridge.metrics import BridgeMetrics
from bridge.partitions.partition import Partition
from bridge.partitions.turns import Group
from bridge.records.message import batch_id, header_of, label
from bridge.records.place import Place
from bridge.records.row import row_of

logger = logging.getLogger(__name__)

#: Most deliveries of one step of the ledger: a script stops all else in Redis while it runs.
STEP: Final = 5_000
#: Most messages of Celery's in one step; with the next, what one step may send to Redis at the most.
STEP_MESSAGES: Final = 1_000
#: Most bytes of keys, values and headers that one message carries, if it carries more than one delivery.
MESSAGE_BYTES: Final = 1_000_000
#: Most of those bytes in one step; a single larger message goes alone.
STEP_BYTES: Final = 12_000_000


@dataclass(frozen=True, slots=True)
class _Ready:
    partition: Partition
    group: Group
    outgoing: Outgoing
    size: int


class Dispatch:
    """Hands out what the partitions have ready.

    Parameters:
        ledger: `None` where there is no Redis for it; then a restarted bridge may hand out again what it had
            not committed.
        one_step: whether ledger and broker are the same Redis, so that pushing and marking are one step.
    """

    def __init__(
        self, handoff: Handoff, ledger: Ledger | None, one_step: bool, cluster: str, group: str, metrics: BridgeMetrics
    ) -> None:
        self._handoff, self._ledger, self._one_step = handoff, ledger, one_step
        self._cluster, self._group = cluster, group
        self._metrics = metrics
        self._unwritten: list[Mark] = []

    def receive(self, held: Mapping[Place, Sequence[Record]], partitions: Mapping[Place, Partition]) -> None:
        """Let the partitions take in records, with what the ledger says of each.

        Raises:
            LedgerUnavailable: nothing was taken in.
        """
        known = [(partitions[place], records) for place, records in held.items()]
        asked = [
            (account, [record.offset() or 0 for record in records])
            for partition, records in known
            for account in partition.accounts.values()
        ]
        found = iter(self._ledger.fates_of(asked)) if self._ledger else None
        marks: list[Mark] = []
        for partition, records in known:
            fates = None if found is None else {name: next(found) for name in partition.accounts}
            marks += partition.receive(records, fates)
        self._unwritten += marks

    def hand_out(self, partitions: Iterable[Partition]) -> int:
        """Hand off what is ready; return how many deliveries went out.

        Raises:
            HandoffFailed, LedgerUnavailable: what had not gone out is given back, to be handed off later.
        """
        self.write([])
        taken = [(partition, *group) for partition in partitions for group in partition.take()]
        ready: list[_Ready] = []
        sent = 0
        try:
            for each in taken:
                ready.append(self._ready(*each))
            while sent < len(ready):
                step = _step(ready, sent)
                self._send(step)
                # What is out is out, whatever the ledger says to the marks: they wait, with the commit.
                sent += len(step)
                self.write([])
        except BaseException:
            for partition, group, _ in taken[len(ready) :]:
                partition.give_back(group.handler, group.offsets)
            for unsent in ready[sent:]:
                unsent.partition.give_back(unsent.group.handler, unsent.group.offsets)
            raise
        return sum(len(each.group.offsets) for each in ready)

    def write(self, marks: Sequence[Mark]) -> None:
        """Tell the ledger; what it does not take is told again with the next."""
        if self._ledger is None:
            return
        self._unwritten += marks
        if self._unwritten:
            long = [mark for mark in self._unwritten if mark.fate is Fate.GAP and len(mark.offsets) > PAGE]
            self._ledger.write([mark for mark in self._unwritten if mark not in long] if long else self._unwritten)
            for mark in long:
                self._ledger.mark_gap(mark.account, mark.offsets[0], mark.offsets[-1])
            self._unwritten = []

    def look(self, watched: Sequence[Partition], undone: Callable[[Partition, int, int], None]) -> None:
        """See how what the partitions have handed out has ended.

        Parameters:
            undone: called for a partition that must be read again, with the offset to begin at and how many of
                its deliveries were done.

        Raises:
            LedgerUnavailable: nothing is known.
        """
        assert self._ledger is not None
        asked = [
            (p, account, window) for p in watched for account in p.accounts.values() for window in p.offsets.windows
        ]
        answers = self._ledger.fates_many([(account, window.start, window.stop - 1) for _, account, window in asked])
        marks: list[Mark] = []
        for (partition, account, window), found in zip(asked, answers, strict=True):
            doomed, reread, lost = partition.saw(account.handler, window.start, found)
            marks += doomed
            if reread is not None:
                undone(partition, reread, lost)
        self.write(marks)

    def suspects(self, partition: Partition, handler: str, seconds: float) -> list[int]:
        """What was handed off to a handler at least `seconds` ago and is not settled, ascending.

        Raises:
            LedgerUnavailable: it is not known.
        """
        assert self._ledger is not None
        found = stuck(self._ledger, partition.accounts[handler], seconds)
        return sorted({offset for each in found for offset in each.offsets})

    def reopen(self, partition: Partition, handler: str, nowhere: Sequence[int], seconds: float) -> None:
        """Open what was handed off over `seconds` ago and is nowhere.

        Raises:
            LedgerUnavailable: it may be open all the same.
        """
        assert self._ledger is not None
        logger.warning(
            "%s-%d: %d deliveries to %s were handed off over %g s ago and their task is nowhere: again.",
            partition.topic,
            partition.number,
            len(nowhere),
            handler,
            seconds,
        )
        self._ledger.write([Mark(partition.accounts[handler], nowhere, Fate.OPEN)])
        self._metrics.stuck.inc(len(nowhere))

    def _send(self, ready: Sequence[_Ready]) -> None:
        if self._ledger is None:
            self._handoff.publish(each.outgoing for each in ready)
            self._note(ready)
        elif self._one_step:
            self._push_and_mark(ready)
        else:
            # Publish, wait for the acknowledgement, then mark: a crash between the two hands out again.
            self._handoff.publish(each.outgoing for each in ready)
            self._unwritten += [_mark(each) for each in ready]
            self._note(ready)

    def _push_and_mark(self, ready: Sequence[_Ready]) -> None:
        assert self._ledger is not None
        bundles = self._bundles(ready)
        written = self._ledger.write([item for item, _ in bundles])
        out: list[_Ready] = []
        for (item, some), found in zip(bundles, written, strict=True):
            changed = set(found.changed)
            for number, each in enumerate(some):
                if each.group.offsets[0] in changed:
                    out.append(each)
                else:
                    before = found.before if item.whole else found.before[number : number + 1]
                    self._again(each, before, found.free if item.whole else ())
        self._note(out)

    def _bundles(self, ready: Sequence[_Ready]) -> list[tuple[HandOff, list[_Ready]]]:
        """What the ledger is asked for: an item a batch, and one for all single deliveries of an account together."""
        bundles: list[tuple[HandOff, list[_Ready]]] = []
        singles: dict[tuple[Account, str], list[tuple[int, bytes, _Ready]]] = {}
        for each in ready:
            key, entry = self._handoff.entry(each.outgoing)
            account = each.partition.accounts[each.group.handler]
            if len(each.group.offsets) == 1:
                singles.setdefault((account, key), []).append((each.group.offsets[0], entry, each))
            else:
                bundles.append((HandOff(account, each.group.offsets, key, [entry]), [each]))
        for (account, key), some in singles.items():
            some.sort(key=itemgetter(0))
            offsets, entries, groups = zip(*some, strict=True)
            bundles.append((HandOff(account, offsets, key, entries), list(groups)))
        return bundles

    def _again(self, ready: _Ready, before: bytes, free: Sequence[int]) -> None:
        """Another bridge was there first, for some of it: the rest goes out as a batch of its own."""
        by_fate: dict[Fate, list[int]] = {}
        for offset, fate in zip(ready.group.offsets, before, strict=True):
            if offset not in free:
                by_fate.setdefault(Fate(fate), []).append(offset)
        for fate, offsets in by_fate.items():
            self._unwritten += ready.partition.settle(ready.group.handler, offsets, fate)
        if free:
            ready.partition.give_back(ready.group.handler, list(free))

    def _note(self, ready: Iterable[_Ready]) -> None:
        counts: dict[tuple[str, str], int] = {}
        for each in ready:
            each.partition.handed(each.group.handler, each.group.offsets)
            key = (each.partition.topic, each.group.handler)
            counts[key] = counts.get(key, 0) + len(each.group.offsets)
        for (topic, handler), count in counts.items():
            self._metrics.handed_off.labels(topic, handler).inc(count)

    def _ready(self, partition: Partition, group: Group, records: Sequence[Record]) -> _Ready:
        """A group as a message; what would make it too large goes back, to be taken again."""
        rows = [row_of(record) for record in records]
        fitting, size = _fitting(rows)
        if fitting < len(rows):
            partition.give_back(group.handler, group.offsets[fitting:])
            group, rows = Group(group.handler, group.offsets[:fitting]), rows[:fitting]
        return _Ready(partition, group, self._outgoing(partition, group, rows), size)

    def _outgoing(self, partition: Partition, group: Group, rows: list[list[Any]]) -> Outgoing:
        topic, number = partition.topic, partition.number
        header = header_of(topic, number, self._cluster, self._group, partition.topic_id, partition.chosen.order, rows)
        return Outgoing(
            group.handler,
            batch_id(topic, number, group.offsets, group.handler),
            label(topic, number, group.offsets),
            header,
        )


def _mark(ready: _Ready) -> Mark:
    return Mark(ready.partition.accounts[ready.group.handler], ready.group.offsets, Fate.HANDED)


def _fitting(rows: Sequence[list[Any]]) -> tuple[int, int]:
    """How many of these rows, one at least, one message may carry, and their bytes."""
    total = 0
    for number, each in enumerate(rows):
        size = _size(each)
        if total + size > MESSAGE_BYTES and number:
            return number, total
        total += size
    return len(rows), total


def _size(data: list[Any]) -> int:
    """Bytes of a row's key, value and headers, which it has in base64."""
    _, _, key, value, headers, *_ = data
    length = len(key or "") + len(value or "")
    if headers:
        length += sum(len(name) + len(given or "") for name, given in headers)
    return length * 3 // 4


def _step(ready: Sequence[_Ready], start: int) -> Sequence[_Ready]:
    """As many from `start` on as one step may carry."""
    count, size, end = 0, 0, start
    while end < len(ready) and end - start < STEP_MESSAGES:
        count += len(ready[end].group.offsets)
        size += ready[end].size
        if end > start and (count > STEP or size > STEP_BYTES):
            break
        end += 1
    return ready[start:end]
