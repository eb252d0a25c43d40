"""How retry and replay topics stand, for `bridge status`: what they hold, what is due next, what is overdue."""

from collections.abc import Collection, Mapping

from bridge.commands.parked import Search
from bridge.handlers import Routes
from bridge.kafka import admin_client
from bridge.ledger import Fate, Ledger
from bridge.records.parked import read
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import Extent, extents
from bridge.topics.ours import Kind
from bridge.topics.readback import records
from bridge.topics.survey import Seen, survey
from bridge.upkeep.facts import TierFacts


def tiers(settings: Settings, routes: Routes, ledger: Ledger, catalog: Catalog) -> list[TierFacts]:
    """The topics of ours that there are, or should be, as status needs to know them.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    seen = survey(admin_client(settings.kafka), settings, routes)
    waits = [each.ours.name for each in seen if each.partitions and each.ours.kind in (Kind.RETRY, Kind.REPLAY)]
    there: dict[str, list[Extent]] = {}
    for extent in extents(settings, waits) if waits else ():
        there.setdefault(extent.topic, []).append(extent)
    due = _first_due(settings, ledger, catalog, routes, [each for some in there.values() for each in some if each.lag])
    return [_facts(settings, each, there.get(each.ours.name, ()), due) for each in seen]


def _facts(settings: Settings, seen: Seen, there: Collection[Extent], due: Mapping[Place, float]) -> TierFacts:
    ours = seen.ours
    missing = seen.partitions is None
    # What is missing is made at the next start, where it may be; that a source is missing is said elsewhere.
    said = not (ours.kind is Kind.SOURCE or (missing and settings.file.kafka_create_topics))
    return TierFacts(
        ours.name,
        ours.kind.value,
        ours.source,
        ours.delay,
        seen.use,
        sum(each.lag for each in there),
        {each.partition: due[each.place] for each in there if each.place in due},
        {each.partition: each.lag for each in there if each.lag},
        tuple(seen.problems) if said else (),
    )


def _first_due(
    settings: Settings, ledger: Ledger, catalog: Catalog, routes: Routes, lagging: Collection[Extent]
) -> dict[Place, float]:
    """When the first record of each partition that is not handed off is due: what comes behind it is due later."""
    searches = {topic: Search(settings, ledger, catalog, topic) for topic in routes.topics}
    starts: dict[Place, int] = {}
    for extent in lagging:
        search = next((each for each in searches.values() if extent.topic in each.tiers), None)
        if search is None:
            continue
        first = max(extent.first, extent.committed or 0)
        offset = ledger.find(search.account(extent.place), {Fate.OPEN}, first, extent.end - 1)
        if offset is not None:
            starts[extent.place] = offset
    ends = {place: offset + 1 for place, offset in starts.items()}
    found: dict[Place, float] = {}
    for record in records(settings, starts, ends):
        held = read(record, "", "")
        if held is not None and held.group == settings.group:
            # A replay is due as soon as it is there.
            at = held.due or record.timestamp()[1]
            found[(record.topic() or "", record.partition() or 0)] = at / 1000
    return found
