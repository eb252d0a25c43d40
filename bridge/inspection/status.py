"""`bridge status`: the state of the group, read from Kafka and Redis, retry and replay topics included."""

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
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.handler_routes import Handler, Routes, changed_handlers
from bridge.inspection.group_access import open_ledger
from bridge.inspection.redacted_status import redact_facts
from bridge.inspection.status_report import make_status_data
from bridge.inspection.status_sources import ANSWER_WITHIN, StatusSources, gather_facts, take_decisions
from bridge.jobs.deleted_topics import find_deleted_topics
from bridge.jobs.deployment_problems import find_foreign_topics, unknown_members
from bridge.jobs.group_facts import DeadLetterFacts, GroupFacts, TopicFacts
from bridge.kafka.clients import Record, admin_client
from bridge.kafka.control_topic import read_published_decisions
from bridge.kafka.dead_letter_reader import RecentDeadLetters, find_dead_letter_partitions
from bridge.kafka.managed_topic import TopicKind
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import DerivedTopics, TopicNames
from bridge.kafka.topic_survey import SurveyedTopic, survey_topics
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogHistory
from bridge.ledger.decision_store import merge_decisions
from bridge.ledger.group_members import find_living_sources
from bridge.ledger.handoff_times import find_oldest_delivery
from bridge.ledger.retry_records import ParkedSearch, count_handed_records
from bridge.settings import Settings

#: Records of all tiers together that are looked at for what they say of their failures; one of each partition anyway.
SAMPLE_SIZE: Final = 1_000


def read_tier_facts(
    settings: Settings, routes: Routes, ledger: Ledger, catalog: TopicCatalog, changed: Collection[Handler] = ()
) -> list[TopicFacts]:
    """The topics of ours that there are, or should be, as status needs to know them.

    Parameters:
        changed: handlers as they wait by policies that were changed.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    seen = survey_topics(admin_client(settings.kafka), settings, routes, changed, find_living_sources(ledger))
    waits = [
        each.ours.name for each in seen if each.partitions and each.ours.kind in (TopicKind.RETRY, TopicKind.REPLAY)
    ]
    there: dict[str, list[Extent]] = {}
    for extent in read_extents(settings, waits) if waits else ():
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
    # What is missing is made at the next start, where it may be; that a source is missing is said elsewhere.
    said = not (missing and (ours.kind is TopicKind.SOURCE or settings.file.kafka_create_topics))
    found = {each.partition: looked[each.place] for each in there if each.place in looked}
    return TopicFacts(
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
        find_failed_waits(
            [held for each in found.values() for held in each.held], any(each.more for each in found.values())
        ),
        seen.replicas,
    )


@dataclass
class PartitionSample:
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
    held: list[RetryRecord] = field(default_factory=list)

    def see(self, record: Record, group: str) -> None:
        """Take in one of its records."""
        held = read_retry_record(record, "", "") if (record.offset() or 0) in self.open else None
        if held is None or held.group != group:
            return
        self.held.append(held)
        if self.first_due is None:
            # A replay is due as soon as it is there.
            self.first_due = (held.due or record.timestamp()[1]) / 1000


def find_failed_waits(held: Iterable[RetryRecord], more: bool) -> list[WaitingFailures]:
    """By handler, what waits in a tier after a failure; what only waits for its time has none (pure)."""
    found: dict[str, WaitingFailures] = {}
    for each in held:
        delivery = each.delivery
        if delivery.error and not delivery.error.startswith(STOPS):
            since = delivery.first_failed_at / 1000 if delivery.first_failed_at else None
            one = WaitingFailures(delivery.handler, "failed", 1, since, delivery.error, more)
            found[one.handler] = found[one.handler].with_more(one) if one.handler in found else one
    return [found[handler] for handler in sorted(found)]


def _sample_partitions(
    settings: Settings, ledger: Ledger, catalog: TopicCatalog, routes: Routes, lagging: Collection[Extent]
) -> dict[Place, PartitionSample]:
    """The first records of each partition that are not handed off, fewer of each where there are many."""
    searches = [ParkedSearch(settings, ledger, catalog, topic) for topic in routes.topics]
    share = max(1, SAMPLE_SIZE // max(1, len(lagging)))
    starts: dict[Place, int] = {}
    found: dict[Place, PartitionSample] = {}
    for extent in lagging:
        search = next((each for each in searches if extent.topic in each.tiers), None)
        if search is not None and (begun := _begin_sample(ledger, search.account(extent.place), extent, share)):
            starts[extent.place], found[extent.place] = begun
    ends = {place: start + found[place].count for place, start in starts.items()}
    for record in read_records(settings, starts, ends):
        found[(record.topic() or "", record.partition() or 0)].see(record, settings.group)
    return found


def _begin_sample(ledger: Ledger, account: Account, extent: Extent, most: int) -> tuple[int, PartitionSample] | None:
    """Where the first lies that is not handed off, and what is to be looked at from there on."""
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
    """What the group consumes and how far, what bridges and workers say of themselves, and what needs a person.

    Parameters:
        quotes: whether it says what errors say.
        recent: the latest dead letters as far as they were read; `None`: they are read anew.

    Returns:
        `group`; `problems`: what needs a person, a sentence each, and `problem_values`: each as values; `topics`: per
        topic and partition `committed`, `end`, `lag`, or `None` if Kafka does not answer; `bridges` and `workers`:
        what each announces, or `None` without a Redis for it; `unconfirmed`: of both kinds the members that a Redis
        which refuses writes still lists, with `last_seen`; `queues`: per queue `messages` and `workers`; `oldest`:
        per topic and handler the seconds that the oldest delivery has been under way; `halted`: per topic `why` and
        `since`, empty when nothing is; `breakers`: what handlers need and is held to be down, empty when nothing is;
        `parked`: what waits in retry and replay topics, or `None` if Kafka or Redis does not answer; `policies`: of
        handlers whose policy is not their code's, by whom and when it was changed, and to what; `counts`: by topic and
        handler, how many deliveries were handled, attempts failed, dead letters written and deliveries replayed in each
        of the last 60 minutes and 24 hours;
        `unanswered`: what could not be asked, a sentence each;
        `unknown`: what is not known although Kafka and Redis answer, a sentence each.

    Raises:
        NothingAnswers: nothing could be told.
    """
    asked = gather_facts(app, settings, routes)
    asked.extents = asked.ask(lambda: read_extents(settings, routes.topics))
    if asked.extents is None and asked.facts.bridges is None and asked.facts.queues is None:
        raise NothingAnswers("\n".join(asked.silent))
    if asked.extents is not None:
        _take_in(asked, app, settings, routes, recent or RecentDeadLetters(settings))
    asked.facts = replace(asked.facts, silent=tuple(asked.silent))
    if not quotes:
        asked.facts = redact_facts(asked.facts)
    return make_status_data(asked, routes.topics)


def _take_in(asked: StatusSources, app: Celery, settings: Settings, routes: Routes, recent: RecentDeadLetters) -> None:
    """What Kafka knows, and what only both of them do."""
    lag: dict[str, int] = dict.fromkeys(routes.topics, 0)
    partitions: dict[str, int] = {}
    for extent in asked.extents or ():
        lag[extent.topic] += extent.lag
        partitions[extent.topic] = partitions.get(extent.topic, 0) + 1
    asked.facts = replace(asked.facts, lag=lag, partitions=partitions)
    # Redis may have been wiped, and no bridge run to put back what was decided.
    if (decided := asked.ask(lambda: read_published_decisions(settings))) is not None:
        take_decisions(asked, app, routes, merge_decisions(decided.standing, asked.mirrored).in_force())
    # Who lives may be unknown where Redis refuses announcements: all else it knows.
    if not asked.has_ledger:
        return
    changed = changed_handlers(app, routes, asked.policies)
    asked.ask(lambda: _take_in_ledger(asked, settings, routes, changed, recent))
    _take_in_other_members(asked, settings, routes)


def _take_in_ledger(
    asked: StatusSources, settings: Settings, routes: Routes, changed: Collection[Handler], recent: RecentDeadLetters
) -> None:
    with open_ledger(settings, routes.topics) as (ledger, catalog):
        # Of retry and replay topics too, those among them that are gone.
        changes = tuple(each for each in LogHistory(ledger).told() if catalog.source_of(each.topic) in routes.topics)
        belongings = DerivedTopics(TopicNames.of(settings), routes.topics).of(each.topic for each in changes)
        there = find_dead_letter_partitions(settings, catalog.topic_ids)
        dead = (letters for each in there.items() for letters in _dead(settings, ledger, catalog, recent, *each))
        asked.facts = replace(
            asked.facts,
            letters=tuple(dead),
            oldest=_oldest(asked.facts, ledger, routes, catalog.topic_ids),
            changes=changes,
            tiers=read_tier_facts(settings, routes, ledger, catalog, changed),
            gone=tuple(find_deleted_topics(settings, ledger, catalog)),
            sources={name: each.source for name, each in belongings.items()},
        )
        asked.knows_parked = True


def _take_in_other_members(asked: StatusSources, settings: Settings, routes: Routes) -> None:
    """Another application in the group; that nobody can tell is no sign of none."""
    if (ledger := Ledger.once(settings, ANSWER_WITHIN)) is None:
        return
    try:
        with closing(ledger):
            foreign = find_foreign_topics(admin_client(settings.kafka), settings, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        asked.unknown.append(unknown_members(settings.group, str(error)))
        return
    if foreign is None:
        asked.unknown.append(unknown_members(settings.group))
    else:
        asked.facts = replace(asked.facts, foreign=foreign)


def _oldest(
    facts: GroupFacts, ledger: Ledger, routes: Routes, topic_ids: Mapping[str, str]
) -> dict[tuple[str, str], float]:
    """By topic and handler, for how long the oldest has been under way: as bridges tell, and where none does."""
    ages = dict(facts.oldest)
    for account in Accounts(ledger).everyone():
        # Bridges tell of the handlers that they have; of those that were renamed or removed none does.
        told = facts.bridges and any(handler.name == account.handler for handler in routes.of(account.topic))
        if told or topic_ids.get(account.topic) != KnownLog.of(account.topic_id).topic_id:
            continue
        if (found := find_oldest_delivery(ledger, account)) is not None:
            where = (account.topic, account.handler)
            ages[where] = max(ages.get(where, 0.0), found.seconds)
    return ages


def _dead(
    settings: Settings,
    ledger: Ledger,
    catalog: TopicCatalog,
    recent: RecentDeadLetters,
    topic: str,
    there: Sequence[Extent],
) -> Iterator[DeadLetterFacts]:
    """The dead letters of a topic whose deliveries are dead still, by handler."""
    found = recent.of(topic, there)
    name = TopicNames.of(settings).dead_letters(topic)
    by_handler: dict[str, list[DeadLetterSummary]] = {}
    for letter in _dead_still(ledger, topic, catalog.topic_ids[topic], found.letters):
        by_handler.setdefault(letter.whose.handler, []).append(letter)
    for handler, letters in sorted(by_handler.items()):
        letters.sort(key=lambda letter: letter.failed_at)
        last = letters[-1]
        yield DeadLetterFacts(
            name, handler, len(letters), letters[0].failed_at, last.reason, last.error[:300], found.more
        )


def _dead_still(
    ledger: Ledger, topic: str, topic_id: str, letters: Iterable[DeadLetterSummary]
) -> Iterator[DeadLetterSummary]:
    """Of those of the log that the topic has now, the last of each delivery that the ledger has as dead."""
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
