"""What is parked, looked for where it must lie: in a record of a retry or replay topic that is not settled yet.

Records come and go meanwhile: what was parked and is not found may have been run, or parked anew, since. So it is
looked for again, in what has come since, before it is called nowhere to be found.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.ledger import OWN, Account, Fate, Ledger, LogBook
from bridge.ledger.tally import Line, line
from bridge.records.origin import Origin
from bridge.records.parked import origin_of
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import Extent, extents
from bridge.topics.readback import records

#: How often what is missing is looked for again.
ROUNDS: Final = 4
#: Offsets of which the ledger is asked at once.
SPAN: Final = 65_536

#: What is parked: by account, the offsets.
Parked = dict[Account, set[int]]


@dataclass
class Tier:
    """A retry or replay topic of a source: this group's records that are not settled.

    Attributes:
        parked: of how many deliveries it has the record, which wait there.
        handed: how many of its records are handed off and not settled.
        unaccounted: committed offsets whose own fate is open.
    """

    topic: str
    kind: str
    delay: int | None
    parked: int = 0
    handed: int = 0
    unaccounted: int = 0

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)


class Search:
    """Looks for what is parked of one source.

    Parameters:
        catalog: prepared with the source.

    Attributes:
        tiers: by topic, what was found there.
    """

    def __init__(self, settings: Settings, ledger: Ledger, catalog: Catalog, source: str) -> None:
        self._settings, self._ledger, self._catalog = settings, ledger, catalog
        self._book = LogBook(ledger)
        belonging = {name: each for name, each in catalog.waiting.items() if each.source == source}
        self.tiers = {name: Tier(name, each.kind, each.delay or None) for name, each in sorted(belonging.items())}
        self._read: dict[Place, int] = {}
        if untold := catalog.identify([name for name in self.tiers if name not in catalog.topic_ids]):
            raise KafkaUnavailable(next(iter(untold.values())))

    def missing(self, spans: Mapping[Account, Line]) -> Parked:
        """Of what the ledger calls parked, by account, that of which no record is left.

        Parameters:
            spans: the accounts, with what was counted of them.

        Raises:
            KafkaUnavailable, LedgerUnavailable: one of them does not answer.
        """
        return self.not_found(self._parked(spans))

    def not_found(self, parked: Parked) -> Parked:
        """Of these, which the ledger called parked, those that it does still, and of which no record has come since.

        Raises:
            KafkaUnavailable, LedgerUnavailable: one of them does not answer.
        """
        for turn in range(ROUNDS):
            for found in self.look():
                if found.account in parked:
                    parked[found.account].discard(found.origin.offset)
            parked = self._still(parked)
            if not parked or (turn and not self._moved):
                break
        return parked

    def look(self) -> Iterator["Lies"]:
        """Each record of this group that is not settled, of those that have come since the last look."""
        alive = self._come()
        self._moved = bool(alive)
        starts = {place: span.start for place, span in alive.items()}
        ends = {place: span.start + len(span.fates) for place, span in alive.items()}
        for record in records(self._settings, starts, ends):
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            fate = alive[place].at(offset)
            if fate is None or (origin := origin_of(record)) is None or origin.group != self._settings.group:
                continue
            tier = self.tiers[place[0]]
            if fate is Fate.HANDED:
                tier.handed += 1
            else:
                tier.parked += 1
            yield Lies(place, offset, fate, origin, record)

    def _come(self) -> dict[Place, "_Span"]:
        """What has come since the last look, by partition."""
        found: dict[Place, _Span] = {}
        for extent in extents(self._settings, self.tiers):
            account = self.account(extent.place)
            if extent.place not in self._read:
                self._read[extent.place] = self._begin(extent, account)
            start = self._read[extent.place]
            if start < extent.end:
                found[extent.place] = _Span(start, self._fates(account, start, extent.end - 1), extent.committed or 0)
                self._read[extent.place] = extent.end
        return found

    def count_unaccounted(self) -> None:
        """Count what of the records themselves is committed and open: it would never be handed off."""
        for extent in extents(self._settings, self.tiers):
            self.tiers[extent.topic].unaccounted += line(self._ledger, self.account(extent.place), extent).unaccounted

    def by_delay(self) -> list[Tier]:
        """What was found, the shortest wait first."""
        return sorted(self.tiers.values(), key=lambda tier: (tier.delay or 0, tier.topic))

    def account(self, place: Place) -> Account:
        """Where a partition of a retry or replay topic has its own fates."""
        topic, partition = place
        return Account(OWN, topic, self._book.log_id(topic, self._catalog.topic_ids[topic], partition), partition)

    def _begin(self, extent: Extent, account: Account) -> int:
        """The first that is not settled: what is committed may be handed off."""
        if extent.committed is None:
            return extent.first
        handed = self._ledger.find(account, {Fate.HANDED}, extent.first, extent.committed - 1)
        return max(extent.first, extent.committed if handed is None else handed)

    def _fates(self, account: Account, first: int, last: int) -> bytes:
        starts = range(first, last + 1, SPAN)
        return b"".join(self._ledger.fates(account, start, min(start + SPAN - 1, last)) for start in starts)

    def _parked(self, spans: Mapping[Account, Line]) -> Parked:
        found: Parked = {}
        for account, span in spans.items():
            runs = self._ledger.runs(account, {Fate.PARKED}, span.first, span.end - 1) if span.parked else ()
            if offsets := {offset for run in runs for offset in run}:
                found[account] = offsets
        return found

    def _still(self, parked: Parked) -> Parked:
        """Those that the ledger calls parked still."""
        asked = [(account, sorted(offsets)) for account, offsets in parked.items() if offsets]
        known = self._ledger.fates_of(asked)
        left = {
            account: {offset for offset, fate in zip(offsets, fates, strict=True) if fate == Fate.PARKED}
            for (account, offsets), fates in zip(asked, known, strict=True)
        }
        return {account: offsets for account, offsets in left.items() if offsets}


@dataclass(frozen=True, slots=True)
class Lies:
    """A record that is not settled: where it lies, its own fate, whose it is."""

    place: Place
    offset: int
    fate: Fate
    origin: Origin
    record: Any

    @property
    def account(self) -> Account:
        """Where its origin has its fate."""
        return Account(self.origin.handler, self.origin.topic, self.origin.topic_id, self.origin.partition)


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    fates: bytes
    committed: int

    def at(self, offset: int) -> Fate | None:
        """The fate of a record that is to run yet, else `None`."""
        fate = self.fates[offset - self.start]
        if fate == Fate.HANDED:
            return Fate.HANDED
        return Fate.OPEN if fate in (Fate.OPEN, Fate.GAP) and offset >= self.committed else None
