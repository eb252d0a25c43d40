"""How retry and replay topics stand, for `bridge status`: what they hold, what is due next, what is overdue."""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from bridge.handlers import Handler, Routes
from bridge.handoff.carriers import STOPS, Waiting
from bridge.handoff.parked import Search
from bridge.kafka import Record, admin_client
from bridge.ledger import Account, Fate, Ledger
from bridge.ledger.members import living_sources
from bridge.ledger.own import on_the_way
from bridge.records.parked import Parked, read
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import Extent, extents
from bridge.topics.ours import Kind
from bridge.topics.readback import records
from bridge.topics.survey import Seen, survey
from bridge.upkeep.facts import TierFacts

#: Records of all tiers together that are looked at for what they say of their failures; one of each partition anyway.
LOOKED_AT: Final = 1_000


def tiers(
    settings: Settings, routes: Routes, ledger: Ledger, catalog: Catalog, changed: Collection[Handler] = ()
) -> list[TierFacts]:
    """The topics of ours that there are, or should be, as status needs to know them.

    Parameters:
        changed: handlers as they wait by policies that were changed.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    seen = survey(admin_client(settings.kafka), settings, routes, changed, living_sources(ledger))
    waits = [each.ours.name for each in seen if each.partitions and each.ours.kind in (Kind.RETRY, Kind.REPLAY)]
    there: dict[str, list[Extent]] = {}
    for extent in extents(settings, waits) if waits else ():
        there.setdefault(extent.topic, []).append(extent)
    lagging = [each for some in there.values() for each in some if each.lag]
    looked = _look(settings, ledger, catalog, routes, lagging)
    ids = {name: catalog.id_of(name) for name in there}
    handed = on_the_way(ledger, there.__contains__, [each for some in there.values() for each in some], ids)
    return [
        _facts(settings, each, there.get(each.ours.name, ()), looked, handed.get(each.ours.name, 0)) for each in seen
    ]


def _facts(
    settings: Settings, seen: Seen, there: Collection[Extent], looked: Mapping[Place, "Looked"], handed: int
) -> TierFacts:
    ours = seen.ours
    missing = seen.partitions is None
    # What is missing is made at the next start, where it may be; that a source is missing is said elsewhere.
    said = not (missing and (ours.kind is Kind.SOURCE or settings.file.kafka_create_topics))
    found = {each.partition: looked[each.place] for each in there if each.place in looked}
    return TierFacts(
        ours.name,
        ours.kind.value,
        ours.source,
        ours.delay,
        seen.use,
        sum(each.lag for each in there) + handed,
        {partition: each.first_due for partition, each in found.items() if each.first_due is not None},
        {each.partition: each.lag for each in there if each.lag},
        tuple(seen.problems) if said else (),
        seen.refused,
        failed([held for each in found.values() for held in each.held], any(each.more for each in found.values())),
        seen.replicas,
    )


@dataclass
class Looked:
    """What was seen of a partition.

    Attributes:
        count: how many records were looked at.
        open: the offsets of those that are not handed off.
        first_due: when (Unix time) the first that is not handed off is due: what comes behind it is due later.
        held: what its first records hold that are not handed off.
        more: whether there are more than were looked at.
    """

    count: int
    more: bool
    open: Set[int]
    first_due: float | None = None
    held: list[Parked] = field(default_factory=list)

    def see(self, record: Record, group: str) -> None:
        """Take in one of its records."""
        held = read(record, "", "") if (record.offset() or 0) in self.open else None
        if held is None or held.group != group:
            return
        self.held.append(held)
        if self.first_due is None:
            # A replay is due as soon as it is there.
            self.first_due = (held.due or record.timestamp()[1]) / 1000


def failed(held: Iterable[Parked], more: bool) -> list[Waiting]:
    """By handler, what waits in a tier after a failure; what only waits for its time has none (pure)."""
    found: dict[str, Waiting] = {}
    for each in held:
        delivery = each.delivery
        if delivery.error and not delivery.error.startswith(STOPS):
            since = delivery.first_failed_at / 1000 if delivery.first_failed_at else None
            one = Waiting(delivery.handler, "failed", 1, since, delivery.error, more)
            found[one.handler] = found[one.handler].with_more(one) if one.handler in found else one
    return [found[handler] for handler in sorted(found)]


def _look(
    settings: Settings, ledger: Ledger, catalog: Catalog, routes: Routes, lagging: Collection[Extent]
) -> dict[Place, Looked]:
    """The first records of each partition that are not handed off, fewer of each where there are many."""
    searches = [Search(settings, ledger, catalog, topic) for topic in routes.topics]
    share = max(1, LOOKED_AT // max(1, len(lagging)))
    starts: dict[Place, int] = {}
    found: dict[Place, Looked] = {}
    for extent in lagging:
        search = next((each for each in searches if extent.topic in each.tiers), None)
        if search is not None and (begun := _begin(ledger, search.account(extent.place), extent, share)):
            starts[extent.place], found[extent.place] = begun
    ends = {place: start + found[place].count for place, start in starts.items()}
    for record in records(settings, starts, ends):
        found[(record.topic() or "", record.partition() or 0)].see(record, settings.group)
    return found


def _begin(ledger: Ledger, account: Account, extent: Extent, most: int) -> tuple[int, Looked] | None:
    """Where the first lies that is not handed off, and what is to be looked at from there on."""
    start = ledger.find(account, {Fate.OPEN}, max(extent.first, extent.committed or 0), extent.end - 1)
    if start is None:
        return None
    end = min(extent.end, start + most)
    fates = ledger.fates(account, start, end - 1)
    still = {start + n for n, fate in enumerate(fates) if fate == Fate.OPEN}
    return start, Looked(end - start, end < extent.end, still)
