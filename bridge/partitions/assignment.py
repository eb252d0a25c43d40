"""The assignment: all partitions that this bridge has, with or without a start offset yet."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Accounts, KnownLog, Ledger
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition, RetryTopicOwner
from bridge.partitions.retry_read_ahead import ReadAheadBudget
from bridge.settings import Settings

#: Most leader epochs that are remembered of records which are not yet safe to commit.
EPOCHS: Final = 100


class Assignment:
    """The assigned partitions; one begins when its start offset is known (bridge.consumer.read_position).

    Parameters:
        now: the time (Unix) by which parked records become due.
    """

    def __init__(
        self,
        settings: Settings,
        routes: Routes,
        catalog: TopicCatalog,
        ledger: Ledger | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._settings, self._routes, self._catalog, self._ledger = settings, routes, catalog, ledger
        self._partitions: dict[Place, Partition | None] = {}
        #: The partitions that were not idle at the last look.
        self._busy: dict[Place, Partition] = {}
        self._begun: list[Partition] | None = None
        self._parked: dict[Place, RetryPartition] | None = None
        self._budget = ReadAheadBudget()
        #: By partition: the committed offset, and the first that Kafka had at the assignment.
        self.committed: dict[Place, int] = {}
        self.low: dict[Place, int] = {}
        #: The known log of each partition, revoked ones included.
        self.logs: dict[Place, KnownLog] = {}
        #: By partition, ascending: the first offset read of each leader epoch.
        self._epochs: dict[Place, list[tuple[int, int]]] = {}
        #: The partitions with queued deliveries below the commit at which this bridge began.
        self._queued_below: set[Place] = set()

    def __contains__(self, place: Place) -> bool:
        return place in self._partitions

    def __iter__(self) -> Iterator[Place]:
        return iter(self._partitions)

    @property
    def partitions(self) -> list[Partition]:
        """Return the partitions that have begun."""
        if self._begun is None:
            self._begun = [partition for partition in self._partitions.values() if partition is not None]
        return self._begun

    @property
    def busy(self) -> list[Partition]:
        """Return the partitions that have begun and are not idle.

        Each turn of the loop goes over these alone: most partitions of most bridges hold nothing most of the time.
        """
        self._busy = {place: partition for place, partition in self._busy.items() if not partition.idle}
        return list(self._busy.values())

    @property
    def busy_parked(self) -> list[RetryPartition]:
        """Return the partitions of retry and replay topics that are not idle."""
        return [partition for partition in self.busy if isinstance(partition, RetryPartition)]

    def note_read(self, places: Iterable[Place]) -> None:
        """Note that records of these partitions were read: they may no longer be idle."""
        self._busy |= {place: self.get_partition(place) for place in places}

    def get_partition(self, place: Place) -> Partition:
        """Return a partition that has begun."""
        partition = self._partitions[place]
        assert partition is not None
        return partition

    def add_place(self, place: Place) -> None:
        """Add a partition of which nothing is known yet."""
        self._put(place, None)
        self._epochs.pop(place, None)
        self._queued_below.discard(place)

    def begin(self, place: Place, start: int, low: int, committed: int | None) -> None:
        """Start a partition at an offset.

        Parameters:
            start: the offset at which reading begins.
            low: the first offset that Kafka has.
            committed: `None` if the group has committed nothing there.
        """
        self.low[place] = low
        self.committed.pop(place, None)
        if committed is not None:
            self.committed[place] = committed
        self._put(place, self.make_partition(place, start))

    def note_epoch(self, place: Place, first: int, epoch: int) -> None:
        """Note the leader epoch that wrote the records from an offset on."""
        known = self._epochs.setdefault(place, [])
        if epoch >= 0 and (not known or known[-1][1] != epoch):
            self._epochs[place] = [*known[-EPOCHS:], (first, epoch)]

    def epoch_below(self, place: Place, offset: int) -> int:
        """Return the leader epoch that wrote the last record below an offset; -1 if unknown."""
        return next((epoch for first, epoch in reversed(self._epochs.get(place, [])) if first < offset), -1)

    def note_queued_below(self, place: Place) -> None:
        """Note that deliveries below the committed offset are queued, as this bridge begins the partition."""
        self._queued_below.add(place)

    def find_commit_mode(self, place: Place) -> str:
        """Return how a commit of this partition is made: the `commit` of its topic, or that of its source topic.

        With queued deliveries below it, a commit is as one at hand-off, whatever the setting is since: a wiped ledger
        loses them.
        """
        if place in self._queued_below:
            return "handoff"
        belongs = self._catalog.belonging(place[0])
        return self._settings.topic(place[0] if belongs is None else belongs.source).commit

    def restart(self, place: Place, first: int) -> None:
        """Start a partition anew at an offset; Kafka and the ledger have all that is known of it.

        Raises:
            KafkaUnavailable: the topic's id is not known yet.
            LedgerUnavailable: the ledger did not take the new start.
        """
        made = self.make_partition(place, first)
        if self._ledger is not None:
            accounts, ours = Accounts(self._ledger), list(made.accounts.values())
            known = dict(zip(ours, accounts.read_progress(ours), strict=True))
            # Only lower it: the progress of a ledger that was set back shows what it lost.
            further = [
                account
                for account, progress in known.items()
                if progress.reached is not None and progress.reached > first
            ]
            for account in further:
                accounts.join(account, first)
            accounts.raise_reached(dict.fromkeys(further, first))
        self._put(place, made)

    def make_partition(self, place: Place, first: int) -> Partition:
        """Return the state of a partition that starts at an offset.

        Raises:
            KafkaUnavailable: the topic's id is not known yet.
        """
        topic, number = place
        if place not in self.logs:
            self.logs[place] = KnownLog(self._catalog.id_of(topic))
        if (belongs := self._catalog.belonging(topic)) is not None:
            chosen = self._settings.topic(belongs.source)
            owner = RetryTopicOwner(belongs.source, chosen, self._settings.group, self._catalog.cluster, belongs.delay)
            window = self._settings.file.kafka_window
            return RetryPartition(topic, number, first, owner, self.logs[place].id, window, self._budget, self._now)
        return Partition(
            topic,
            number,
            first,
            self._routes.of(topic),
            self._settings.topic(topic),
            self.logs[place].id,
            self._settings.file.kafka_window,
        )

    @property
    def parked(self) -> Collection[RetryPartition]:
        """Return the partitions of retry and replay topics that have begun."""
        return self._find_parked().values()

    @property
    def parked_places(self) -> Collection[Place]:
        """Return topic and number of these."""
        return self._find_parked().keys()

    def _find_parked(self) -> Mapping[Place, RetryPartition]:
        if self._parked is None:
            parked = (partition for partition in self.partitions if isinstance(partition, RetryPartition))
            self._parked = {partition.place: partition for partition in parked}
        return self._parked

    def remove(self, places: Iterable[Place]) -> None:
        """Remove partitions that another bridge has now."""
        for place in places:
            self._put(place, None)
            self._partitions.pop(place)
            self.committed.pop(place, None)
            self.low.pop(place, None)

    def _put(self, place: Place, partition: Partition | None) -> None:
        if (before := self._partitions.get(place)) is not None:
            before.close()
        self._partitions[place] = partition
        # Made anew and not changed: somebody may be going over the old ones.
        self._begun = self._parked = None
        self._busy.pop(place, None)
        if partition is not None:
            self._busy[place] = partition
