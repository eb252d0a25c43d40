"""The partitions that this bridge has."""

from collections.abc import Iterable, Iterator

from bridge.catalog import Catalog
from bridge.ledger import Accounts, Ledger
from bridge.metrics import Place
from bridge.partition import Partition
from bridge.routes import Routes
from bridge.settings import Settings


class Assignment:
    """The assigned partitions by topic and number, begun or not (bridge.beginnings)."""

    def __init__(self, settings: Settings, routes: Routes, catalog: Catalog, ledger: Ledger | None) -> None:
        self._settings, self._routes, self._catalog, self._ledger = settings, routes, catalog, ledger
        self._partitions: dict[Place, Partition | None] = {}
        #: The committed offset of each, and the first that Kafka had when it was taken over.
        self.committed: dict[Place, int] = {}
        self.low: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._partitions

    def __iter__(self) -> Iterator[Place]:
        return iter(self._partitions)

    @property
    def partitions(self) -> list[Partition]:
        """Those that have begun."""
        return [partition for partition in self._partitions.values() if partition is not None]

    def at(self, place: Place) -> Partition:
        """The state of a partition that has begun."""
        found = self._partitions[place]
        assert found is not None
        return found

    def open(self, place: Place) -> None:
        """A partition is ours, and nothing else is known of it."""
        self._partitions[place] = None

    def begin(self, place: Place, start: int, low: int, committed: int | None) -> None:
        """Let a partition begin.

        Parameters:
            start: the offset at which reading begins.
            low: the first offset that Kafka has.
            committed: `None` if the group has committed nothing there.
        """
        self.low[place] = low
        self.committed.pop(place, None)
        if committed is not None:
            self.committed[place] = committed
        self._partitions[place] = self.made(place, start)

    def restart(self, place: Place, first: int) -> None:
        """Begin a partition anew at an offset: all that is known of it is in Kafka and in the ledger.

        Raises:
            KafkaUnavailable: the topic's id is not known yet.
            LedgerUnavailable: the ledger did not take from where on it is asked.
        """
        made = self.made(place, first)
        if self._ledger is not None:
            accounts = Accounts(self._ledger)
            for account in made.accounts.values():
                accounts.join(account, first)
            accounts.reach(dict.fromkeys(made.accounts.values(), first))
        self._partitions[place] = made

    def made(self, place: Place, first: int) -> Partition:
        """A partition as it is at its beginning.

        Raises:
            KafkaUnavailable: the topic's id is not known yet.
        """
        topic, number = place
        if topic not in self._catalog.topic_ids:
            self._catalog.identify({topic})
        return Partition(
            topic,
            number,
            first,
            self._routes.of(topic),
            self._settings.topic(topic),
            self._catalog.topic_ids[topic],
        )

    def remove(self, places: Iterable[Place]) -> None:
        """Forget partitions that another bridge has now."""
        for place in places:
            self._partitions.pop(place, None)
            self.committed.pop(place, None)
            self.low.pop(place, None)
