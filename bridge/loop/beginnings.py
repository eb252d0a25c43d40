"""Where reading a partition begins: found out in the loop, a step at a time, for each partition apart.

A rebalance must not wait for it: what has been settled may be long, a partition may have no leader, the ledger may
be away. Until it is known the partition is paused.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.ledger import Account, Accounts, Fate, Ledger
from bridge.ledger.pages import PAGE
from bridge.loop.kafka_logs import Logs, Met, Said
from bridge.partitions.assignment import Assignment
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import epoch_of, log_of

logger = logging.getLogger(__name__)

#: Seconds that Kafka may take to say what is committed, and until it is asked again.
ANSWER_WITHIN: Final = 2.0
AGAIN_AFTER: Final = 1.0
#: Offsets of one look at the ledger, and seconds of one turn of the loop for all looks.
LOOK: Final = 32 * PAGE
TURN: Final = 0.05


class Committed(NamedTuple):
    """What the group has committed on a partition.

    Attributes:
        offset: `None` if nothing.
        epoch: the ledger that this commit rests on; `None` if it was not a bridge that committed.
        said: what it says of the log.
    """

    offset: int | None
    epoch: str | None
    said: Said


class Log(NamedTuple):
    """The first offset that Kafka has, and one more than the last."""

    low: int
    high: int


@dataclass
class _Open:
    """What is known so far of a partition that has not begun."""

    ask_at: float = 0.0
    committed: Committed | None = None
    ends: "tuple[Future[Any], Future[Any]] | None" = None
    log: Log | None = None
    met: Met | None = None
    look: Iterator[int | None] | None = None
    start: int | None = None
    first: int = 0
    said: bool = False


class Beginnings:
    """The partitions that are assigned and have not begun.

    Parameters:
        began: told of each that has: its place, and one more than the last offset that Kafka has there.
    """

    def __init__(
        self,
        settings: Settings,
        assignment: Assignment,
        catalog: Catalog,
        ledger: Ledger | None,
        logs: Logs,
        began: Callable[[Place, int], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._assignment, self._catalog, self._ledger = settings, assignment, catalog, ledger
        self._logs, self._began, self._clock = logs, began, clock
        self._open: dict[Place, _Open] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._open

    def __iter__(self) -> Iterator[Place]:
        return iter(self._open)

    @property
    def unasked(self) -> bool:
        """Whether Kafka has yet to say something of one of them for the first time."""
        return any(each.log is None and not each.said for each in self._open.values())

    def add(self, places: Iterable[Place]) -> None:
        """These are to begin, or to begin anew: nothing that was known of them counts."""
        for place in places:
            self._assignment.open(place)
            self._open[place] = _Open()

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self._open.pop(place, None)

    def advance(self, consumer: Consumer) -> None:
        """Ask what is not known, take in what has been answered, look on for some milliseconds, begin what can.

        Raises:
            LedgerUnavailable: those that need it have not begun; the next call goes on with them.
        """
        self._ask_committed(consumer)
        until = self._clock() + TURN
        for place, each in list(self._open.items()):
            if each.committed is not None and each.log is None:
                self._hear_log(place, each)
            if each.log is not None and (each.start is None or not self._begin(consumer, place, each)):
                self._look(place, each)
                if each.start is not None:
                    self._begin(consumer, place, each)
            if self._clock() > until:
                # So that another is first the next time.
                if place in self._open:
                    self._open[place] = self._open.pop(place)
                return

    def _ask_committed(self, consumer: Consumer) -> None:
        """One question for all; Kafka's client waits for the answer, so that silence is not asked again at once."""
        now = self._clock()
        asked = [place for place, each in self._open.items() if each.committed is None and now >= each.ask_at]
        if not asked:
            return
        # Anew: a topic that was deleted and made again has another id, and a clean page in the ledger.
        untold = self._catalog.identify({topic for topic, _ in asked})
        for place in asked:
            if place[0] in untold:
                self._later(place, untold[place[0]])
        asked = [place for place in asked if place[0] not in untold]
        if not asked:
            return
        try:
            known = consumer.committed([TopicPartition(*place) for place in asked], timeout=ANSWER_WITHIN)
        except KafkaException as error:
            for place in asked:
                self._later(place, str(error))
            return
        for partition in known:
            place = (partition.topic, partition.partition)
            if partition.error is not None:
                self._later(place, partition.error.str())
                continue
            offset = partition.offset if partition.offset >= 0 else None
            epoch: Any = partition.leader_epoch
            said = Said(offset, log_of(partition.metadata), -1 if epoch is None else epoch)
            self._open[place].committed = Committed(offset, epoch_of(partition.metadata), said)

    def _hear_log(self, place: Place, each: _Open) -> None:
        """Each is asked for by itself: one without a leader holds up no other."""
        if each.ends is None:
            if self._clock() >= each.ask_at:
                each.ends = self._catalog.ask_log(*place)
            return
        if not all(future.done() for future in each.ends):
            return
        ends, each.ends = each.ends, None
        try:
            each.log = Log(*(self._catalog.told(future) for future in ends))
        except KafkaUnavailable as error:
            self._later(place, str(error))

    def _later(self, place: Place, why: str) -> None:
        each = self._open[place]
        each.ask_at = self._clock() + AGAIN_AFTER
        if not each.said:
            logger.warning("%s-%d: where to begin is not known yet: %s", *place, why)
        each.said = True

    def _look(self, place: Place, each: _Open) -> None:
        assert each.committed is not None
        assert each.log is not None
        if each.look is None:
            said = each.committed.said
            each.met = self._logs.meet(place, self._catalog.id_of(place[0]), said, each.log.low, each.log.high)
            # A commit on another log says nothing of this one.
            committed = each.committed if each.met.offset == said.offset else Committed(each.met.offset, None, said)
            each.first = self._first(place, committed.offset, each.log)
            each.look = self._starts(place, committed, each.log, each.first)
        try:
            each.start = next(each.look)
        except BaseException:
            each.look = None
            raise

    def _begin(self, consumer: Consumer, place: Place, each: _Open) -> bool:
        """Seek there and read; a consumer that has just been given a partition may not be able to yet."""
        assert each.start is not None
        assert each.log is not None
        assert each.met is not None
        # Where the client knows the epoch, it sees that the log still has what was read, or goes back to where it ends.
        kept = each.met.kept and each.met.offset is not None and each.start >= each.met.offset
        # What was skipped because it is settled was read too, whoever committed.
        epoch = each.met.epoch if kept or each.start > each.first else -1
        try:
            consumer.seek(TopicPartition(*place, each.start, leader_epoch=epoch))
        except KafkaException as error:
            logger.debug("%s-%d cannot be read yet: %s", *place, error.args[0].str())
            return True
        del self._open[place]
        self._assignment.begin(place, each.start, each.log.low, each.met.offset if each.met.kept else None)
        self._assignment.wrote(place, -1, epoch)
        self._began(place, each.log.high)
        return True

    def _starts(self, place: Place, committed: Committed, log: Log, first: int) -> Iterator[int | None]:
        """Yield the offset at which reading begins; before it, `None` for each look at the ledger."""
        yield from self._expired(place, committed.offset, log)
        if self._ledger is None:
            yield first
            return
        before = self._ledger.state()
        made = self._assignment.made(place, first)
        accounts = list(made.accounts.values())
        back = self._went_back_to(place, accounts, committed, first)
        starts = []
        for account in accounts:
            for found in _starts_of(self._ledger, account, made.offsets.unsafe, log, first, back):
                if found is None:
                    yield None
                else:
                    starts.append(found)
        start = min(starts, default=first)
        if back < first:
            start = min(start, max(back, log.low))
        reached = dict.fromkeys(accounts, min(start, first))
        if doubt := Accounts(self._ledger).reach(reached, before).doubt(before):
            logger.warning("%s-%d: looked at anew: %s.", *place, doubt)
            yield from self._starts(place, committed, log, first)
            return
        if start > first:
            logger.info("%s-%d: offsets %d to %d are settled: skipped.", *place, first, start - 1)
        elif start < first:
            logger.warning(
                "%s-%d: the ledger has lost what became of offset %d, below the committed %d: read again from there.",
                *place,
                start,
                first,
            )
        yield start

    def _first(self, place: Place, committed: int | None, log: Log) -> int:
        """Where the group is; if it has committed nothing, or Kafka forgot it, as far as the ledger knows."""
        if committed is None and self._ledger is not None:
            accounts = list(self._assignment.made(place, 0).accounts.values())
            reached = Accounts(self._ledger).reached(accounts)
            if reached is not None and reached <= log.high:
                if reached > log.low:
                    logger.warning("%s-%d: Kafka has no commit of the group; the ledger has: %d.", *place, reached)
                committed = reached
        if committed is None:
            latest = self._settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
            return log.high if latest else log.low
        return max(committed, log.low)

    def _expired(self, place: Place, committed: int | None, log: Log) -> Iterator[None]:
        """Count what Kafka's retention took before anything became of it; `None` for each look at the ledger."""
        if committed is None or committed >= log.low:
            return
        accounts = list(self._assignment.made(place, committed).accounts.values())
        open_ = dict.fromkeys(accounts, log.low - committed if self._ledger is None else 0)
        if self._ledger is not None:
            for account in accounts:
                for at in range(committed, log.low, LOOK):
                    found = self._ledger.count(account, at, min(log.low, at + LOOK) - 1)
                    open_[account] += found.fates[Fate.OPEN] + found.pageless
                    yield None
        self._logs.expired(place, committed, log.low, max(open_.values(), default=0))

    def _went_back_to(self, place: Place, accounts: list[Account], committed: Committed, first: int) -> int:
        """The first offset below the committed one of which the ledger has lost that it was committed.

        It says before each commit how far the commit will go. One that says less went back: what it had seen
        since is to be read again. One that is another than at the commit was wiped, and one that never heard of the
        partition is older than that: nothing is known of what lies below. With commit="completion" all of it was
        settled, else what was queued is lost.
        """
        assert self._ledger is not None
        if committed.offset is None or committed.epoch is None or not accounts:
            return first
        known = Accounts(self._ledger)
        wiped = committed.epoch != self._ledger.state().epoch
        reached = None if wiped else known.reached(accounts)
        if reached is not None:
            return min(first, reached)
        if self._settings.topic(place[0]).commit == "handoff":
            known.lose(accounts, committed.offset)
            logger.error(
                "%s-%d: %s: what was handed off below offset %d and not handled is lost; "
                "`bridge reset` reads it again.",
                *place,
                "the ledger was wiped" if wiped else "the ledger was set back to before it knew of this partition",
                committed.offset,
            )
        return first


def _starts_of(
    ledger: Ledger, account: Account, unsafe: frozenset[Fate], log: Log, first: int, back: int
) -> Iterator[int | None]:
    """Yield the first offset of which something is left to do: below the committed one, if the ledger went back."""
    # A handler that a ledger which went back does not know may have been there all the time since.
    joined = Accounts(ledger).join(account, back)
    for at in range(max(joined, log.low), first, LOOK):
        found = next(ledger.runs(account, {Fate.OPEN}, at, min(first, at + LOOK) - 1), None)
        if found is not None:
            yield found.start
            return
        yield None
    # A gap too: it is inferred from what Kafka left out, and a record may lie there after all.
    for at in range(first, log.high, LOOK):
        unsettled = ledger.find(account, unsafe | {Fate.GAP}, at, min(log.high, at + LOOK) - 1)
        if unsettled is not None:
            yield unsettled
            return
        yield None
    yield max(first, log.high)
