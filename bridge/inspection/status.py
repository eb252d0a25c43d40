"""`bridge status`: the state of the group, read from Kafka and Redis, retry and replay topics included; and the same
without the texts of errors, for accounts that may not see every field of values.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from celery import Celery

from bridge.dispatch.carrier_message import STOPS, WaitingFailures
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NothingAnswers
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.delivery_identity import Place
from bridge.formats.group_decision import GroupDecision
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.handler_routes import Handler, Routes, changed_handlers
from bridge.inspection.status_report import make_status_data
from bridge.inspection.status_sources import ANSWER_WITHIN, StatusSources, add_decisions, gather_facts
from bridge.jobs.deleted_topics import find_deleted_topics
from bridge.jobs.deployment_problems import find_foreign_topics, unknown_members
from bridge.jobs.group_facts import DeadLetterFacts, GroupFacts, TopicFacts
from bridge.kafka.clients import Record, admin_client
from bridge.kafka.control_topic import read_published_decisions
from bridge.kafka.dead_letter_reader import RecentDeadLetters, find_dead_letter_partitions
from bridge.kafka.managed_topic import TopicKind
from bridge.kafka.partition_offsets import Extent, ExtentReader
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import DerivedTopics, TopicNames
from bridge.kafka.topic_survey import SurveyedTopic, survey_topics
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogHistory
from bridge.ledger.decision_store import merge_decisions
from bridge.ledger.group_access import open_ledger
from bridge.ledger.group_members import find_living_sources
from bridge.ledger.handoff_times import OldestDeliveryFinder
from bridge.ledger.unsettled_retry_records import ParkedSearch, count_handed_records
from bridge.settings import Settings

#: The number of records of all tiers together that are sampled for their failures; at least one of each partition.
SAMPLE_SIZE: Final = 1_000


def read_tier_facts(
    settings: Settings,
    routes: Routes,
    ledger: Ledger,
    catalog: TopicCatalog,
    reader: ExtentReader,
    changed: Collection[Handler] = (),
) -> list[TopicFacts]:
    """Return the facts of the group's topics, of those that exist and those that should.

    Parameters:
        reader: takes in the partitions that cannot be read.
        changed: handlers with the waits of their changed policies.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    seen = survey_topics(admin_client(settings.kafka), settings, routes, changed, find_living_sources(ledger))
    waits = [
        each.ours.name for each in seen if each.partitions and each.ours.kind in (TopicKind.RETRY, TopicKind.REPLAY)
    ]
    there: dict[str, list[Extent]] = {}
    for extent in reader.read(settings, waits) if waits else ():
        there.setdefault(extent.topic, []).append(extent)
    lagging = [each for some in there.values() for each in some if each.lag]
    looked = _sample_partitions(settings, ledger, catalog, routes, lagging)
    ids = {name: catalog.id_of(name) for name in there}
    handed = count_handed_records(ledger, there.__contains__, [each for some in there.values() for each in some], ids)
    return [
        _tier_facts(settings, each, there.get(each.ours.name, ()), looked, handed.get(each.ours.name, 0))
        for each in seen
    ]


def _tier_facts(
    settings: Settings,
    seen: SurveyedTopic,
    there: Collection[Extent],
    looked: Mapping[Place, "PartitionSample"],
    handed: int,
) -> TopicFacts:
    ours = seen.ours
    missing = seen.partitions is None
    # The next start creates a missing topic, if it may; a missing source is reported elsewhere.
    reported = not (missing and (ours.kind is TopicKind.SOURCE or settings.file.kafka_create_topics))
    looks = {each.partition: looked[each.place] for each in there if each.place in looked}
    return TopicFacts(
        ours.name,
        ours.kind.value,
        ours.source,
        ours.delay,
        seen.use,
        sum(each.lag for each in there) + handed,
        {partition: each.dues for partition, each in looks.items() if each.dues},
        {each.partition: each.lag for each in there if each.lag},
        tuple(seen.problems) if reported else (),
        seen.refused,
        find_failed_waits(
            [held for each in looks.values() for held in each.held], any(each.more for each in looks.values())
        ),
        seen.replicas,
    )


@dataclass
class PartitionSample:
    """A sample of the first records of a partition that are not handed off.

    Attributes:
        count: the number of records in the sample.
        more: whether the partition has more.
        open: the offsets that are not handed off.
        dues: by handler, when (Unix time) the first of these is due; later records are due later.
        held: the contents of these records.
    """

    count: int
    more: bool
    open: Set[int]
    dues: dict[str, float] = field(default_factory=dict)
    held: list[RetryRecord] = field(default_factory=list)

    def see(self, record: Record, group: str) -> None:
        """Add a record to the sample."""
        held = read_retry_record(record, "", "") if (record.offset() or 0) in self.open else None
        if held is None or held.group != group:
            return
        self.held.append(held)
        # A replay is due at once.
        self.dues.setdefault(held.delivery.handler, (held.due or record.timestamp()[1]) / 1000)


def find_failed_waits(held: Iterable[RetryRecord], more: bool) -> list[WaitingFailures]:
    """Return by handler the deliveries that wait in a tier after a failure (pure)."""
    sums: dict[str, WaitingFailures] = {}
    for record in held:
        delivery = record.delivery
        if delivery.error and not delivery.error.startswith(STOPS):
            since = delivery.first_failed_at / 1000 if delivery.first_failed_at else None
            one = WaitingFailures(delivery.handler, "failed", 1, since, delivery.error, more)
            sums[one.handler] = sums[one.handler].with_more(one) if one.handler in sums else one
    return [sums[handler] for handler in sorted(sums)]


def _sample_partitions(
    settings: Settings, ledger: Ledger, catalog: TopicCatalog, routes: Routes, lagging: Collection[Extent]
) -> dict[Place, PartitionSample]:
    """Return a sample of each partition, smaller if there are many partitions."""
    searches = [ParkedSearch(settings, ledger, catalog, topic) for topic in routes.topics]
    share = max(1, SAMPLE_SIZE // max(1, len(lagging)))
    starts: dict[Place, int] = {}
    samples: dict[Place, PartitionSample] = {}
    for extent in lagging:
        search = next((each for each in searches if extent.topic in each.tiers), None)
        if search is not None and (begun := _begin_sample(ledger, search.account(extent.place), extent, share)):
            starts[extent.place], samples[extent.place] = begun
    ends = {place: start + samples[place].count for place, start in starts.items()}
    for record in read_records(settings, starts, ends):
        samples[(record.topic() or "", record.partition() or 0)].see(record, settings.group)
    return samples


def _begin_sample(ledger: Ledger, account: Account, extent: Extent, most: int) -> tuple[int, PartitionSample] | None:
    """Return the first offset that is not handed off, with the empty sample from there on; `None` if there is none."""
    start = ledger.find(account, {Fate.OPEN}, max(extent.first, extent.committed or 0), extent.end - 1)
    if start is None:
        return None
    end = min(extent.end, start + most)
    fates = ledger.fates(account, start, end - 1)
    still = {start + n for n, fate in enumerate(fates) if fate == Fate.OPEN}
    return start, PartitionSample(end - start, end < extent.end, still)


def read_status(
    app: Celery, settings: Settings, routes: Routes, *, quotes: bool = True, recent: RecentDeadLetters | None = None
) -> dict[str, Any]:
    """Return the status of the group as JSON-able data; docs/reference/status.md describes its fields.

    Parameters:
        quotes: whether the texts of errors are included.
        recent: the latest dead letters as far as they were read; `None`: they are read again.

    Raises:
        NothingAnswers: neither Kafka nor Redis nor the broker answers.
    """
    sources, reader = gather_facts(app, settings, routes), ExtentReader()
    extents = sources.ask(lambda: reader.read(settings, routes.topics))
    if extents is None and sources.facts.bridges is None and sources.facts.queues is None:
        raise NothingAnswers("\n".join(sources.silent))
    if extents is not None:
        facts = _count_lag(sources.facts, routes.topics, extents, reader.unreadable)
        sources = replace(sources, extents=extents, facts=facts)
        sources = _ask_kafka(sources, app, settings, routes, recent or RecentDeadLetters(settings), reader)
    facts = replace(sources.facts, silent=tuple(sources.silent), unreadable=reader.unreadable)
    return make_status_data(replace(sources, facts=facts if quotes else redact_facts(facts)), routes.topics)


def _count_lag(
    facts: GroupFacts, topics: Collection[str], extents: Collection[Extent], unreadable: Iterable[Place]
) -> GroupFacts:
    """Return the facts with the consumer lag of each topic as far as it can be read, and its number of partitions."""
    lag: dict[str, int] = dict.fromkeys(topics, 0)
    for extent in extents:
        lag[extent.topic] += extent.lag
    partitions = Counter(topic for topic, _ in [*(extent.place for extent in extents), *unreadable])
    return replace(facts, lag=lag, partitions=partitions)


def _ask_kafka(
    sources: StatusSources,
    app: Celery,
    settings: Settings,
    routes: Routes,
    recent: RecentDeadLetters,
    reader: ExtentReader,
) -> StatusSources:
    """Return the sources with what Kafka knows, and with the facts that need Kafka and Redis."""
    # Redis may have been wiped, with no running bridge to restore the decisions.
    if (decided := sources.ask(lambda: read_published_decisions(settings))) is not None:
        decisions = merge_decisions(decided.standing, sources.mirrored).in_force()
        sources = add_decisions(sources, app, routes, decisions)
    # A Redis that refuses writes may not know the members, but all else.
    if not sources.has_ledger:
        return sources
    known, changed = sources.facts, changed_handlers(app, routes, sources.policies)
    found = sources.ask(lambda: _read_ledger_facts(known, settings, routes, changed, recent, reader))
    if found is not None:
        sources = replace(sources, facts=found, knows_parked=True)
    foreign, unknown = _find_other_application(settings, routes)
    return replace(
        sources, facts=replace(sources.facts, foreign=foreign), unknown=[*sources.unknown, *filter(None, [unknown])]
    )


def _read_ledger_facts(
    facts: GroupFacts,
    settings: Settings,
    routes: Routes,
    changed: Collection[Handler],
    recent: RecentDeadLetters,
    reader: ExtentReader,
) -> GroupFacts:
    """Return the facts with those that need Kafka and the ledger."""
    with open_ledger(settings, routes.topics) as (ledger, catalog):
        # Also of retry and replay topics, even deleted ones.
        changes = tuple(
            each for each in LogHistory(ledger).read_changes() if catalog.source_of(each.topic) in routes.topics
        )
        belongings = DerivedTopics(TopicNames.from_settings(settings), routes.topics).find_derived(
            each.topic for each in changes
        )
        there = find_dead_letter_partitions(settings, catalog.topic_ids, reader.read)
        dead = (letters for each in there.items() for letters in _dead(settings, ledger, catalog, recent, *each))
        return replace(
            facts,
            letters=tuple(dead),
            oldest=_oldest(facts, ledger, routes, catalog.topic_ids),
            changes=changes,
            tiers=read_tier_facts(settings, routes, ledger, catalog, reader, changed),
            gone=tuple(find_deleted_topics(settings, ledger, catalog)),
            sources={name: each.source for name, each in belongings.items()},
        )


def _find_other_application(settings: Settings, routes: Routes) -> tuple[tuple[str, ...], str]:
    """Return the topics of another application in the group, and why it is unknown whether there is one."""
    if (ledger := Ledger.once(settings, ANSWER_WITHIN)) is None:
        return (), ""
    try:
        with closing(ledger):
            foreign = find_foreign_topics(settings, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return (), unknown_members(settings.group, str(error))
    return ((), unknown_members(settings.group)) if foreign is None else (foreign, "")


def _oldest(
    facts: GroupFacts, ledger: Ledger, routes: Routes, topic_ids: Mapping[str, str]
) -> dict[tuple[str, str], float]:
    """Return by topic and handler how long the oldest delivery is in flight, by bridges or the ledger."""
    ages, finder = dict(facts.oldest), OldestDeliveryFinder(ledger)
    for account in Accounts(ledger).list_accounts():
        # Bridges announce it for their handlers, not for renamed or removed ones.
        announced = facts.bridges and any(handler.name == account.handler for handler in routes.of(account.topic))
        if announced or topic_ids.get(account.topic) != KnownLog.from_id(account.topic_id).topic_id:
            continue
        if (oldest := finder.find_delivery(account)) is not None:
            where = (account.topic, account.handler)
            ages[where] = max(ages.get(where, 0.0), oldest.seconds)
    return ages


def _dead(
    settings: Settings,
    ledger: Ledger,
    catalog: TopicCatalog,
    recent: RecentDeadLetters,
    topic: str,
    there: Sequence[Extent],
) -> Iterator[DeadLetterFacts]:
    """Yield by handler the dead letters of a topic whose deliveries are still dead."""
    latest = recent.read_latest(topic, there)
    name = TopicNames.from_settings(settings).dead_letters(topic)
    by_handler: dict[str, list[DeadLetterSummary]] = {}
    for letter in _dead_still(ledger, topic, catalog.topic_ids[topic], latest.letters):
        by_handler.setdefault(letter.whose.handler, []).append(letter)
    for handler, letters in sorted(by_handler.items()):
        letters.sort(key=lambda letter: letter.failed_at)
        last = letters[-1]
        yield DeadLetterFacts(
            name, handler, len(letters), letters[0].failed_at, last.reason, last.error[:300], latest.more
        )


def _dead_still(
    ledger: Ledger, topic: str, topic_id: str, letters: Iterable[DeadLetterSummary]
) -> Iterator[DeadLetterSummary]:
    """Yield the last letter of each delivery that is dead by the ledger, of the log that the topic has now."""
    by_account: dict[Account, dict[int, DeadLetterSummary]] = {}
    log_of = cache(LogHistory(ledger).log_id)
    for letter in letters:
        whose = letter.whose
        account = Account(whose.handler, topic, log_of(topic, topic_id, whose.partition), whose.partition)
        if whose.is_of(account.topic_id):
            by_account.setdefault(account, {})[whose.offset] = letter
    fates = ledger.fates_of([(account, sorted(by_offset)) for account, by_offset in by_account.items()])
    for by_offset, known in zip(by_account.values(), fates, strict=True):
        yield from (by_offset[at] for at, fate in zip(sorted(by_offset), known, strict=True) if fate == Fate.DEAD)


#: The text in the place of an error, or of the reason that a handler gave for a halt.
REDACTED: Final = "hidden, because it may quote masked values"


def redact_facts(facts: GroupFacts) -> GroupFacts:
    """Return the facts without any text that a handler wrote (pure)."""
    return replace(
        facts,
        letters=tuple(replace(each, error=REDACTED) for each in facts.letters),
        failing=_redact_waits(facts.failing),
        outcomes={whose: each._replace(error=REDACTED) for whose, each in facts.outcomes.items()},
        unpublished={name: each._replace(error=REDACTED) for name, each in facts.unpublished.items()},
        tiers=tuple(replace(tier, failed=_redact_waits(tier.failed)) for tier in facts.tiers),
        breakers=tuple(replace(each, why=REDACTED) for each in facts.breakers),
        halts={topic: _redact_decision(halt) for topic, halt in facts.halts.items()},
        handler_halts=tuple(
            replace(each, scope=each.scope if each.scope.key is None else each.scope._replace(key=REDACTED))
            for each in facts.handler_halts
        ),
    )


def redact_halt(halt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a halt as JSON without the text of a handler; the reason of a person stays."""
    if "handler" not in halt:
        return dict(halt)
    return {name: value for name, value in halt.items() if name != "error"} | {"why": REDACTED}


def _redact_waits(waits: Iterable[WaitingFailures]) -> tuple[WaitingFailures, ...]:
    return tuple(replace(sample, error=REDACTED) for sample in waits)


def _redact_decision(halt: GroupDecision) -> GroupDecision:
    data = redact_halt(halt.data or {})
    why = str(data.pop("why", halt.why))
    return replace(halt, change=halt.change._replace(data=data, why=why))
