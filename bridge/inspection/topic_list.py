"""`bridge topics`: the topics that the handlers need, those that exist, and what is wrong with each; it creates
missing ones.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from celery import Celery

from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided
from bridge.formats.group_decision import find_changed_policies
from bridge.handler_routes import Routes, changed_handlers
from bridge.inspection.topic_problems import find_unreadable_partitions
from bridge.jobs.deployment_problems import describe_foreign_member, find_foreign_topics, unknown_members
from bridge.kafka.clients import AdminClient, admin_client
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.partition_offsets import ExtentReader
from bridge.kafka.topic_admin import ANSWER_WITHIN, add_partitions, create_control_topic, create_topics, read_cluster
from bridge.kafka.topic_survey import SurveyedTopic, find_leaderless_partitions, list_waiting_topics, survey_topics
from bridge.ledger import Ledger
from bridge.ledger.group_access import open_decisions, open_ledger
from bridge.ledger.group_members import find_living_sources
from bridge.ledger.unsettled_retry_records import count_handed_records
from bridge.settings import Settings


class TopicList(NamedTuple):
    """The topics of a group, and how many records of each retry and replay topic are not settled.

    Attributes:
        left: by retry and replay topic, its unsettled records; empty if the ledger does not answer.
        foreign: the topics of another application that uses the group.
        unknown: why it is not known whether there is one; empty if it is known.
    """

    found: list[SurveyedTopic]
    left: Mapping[str, int]
    group: str = ""
    foreign: Sequence[str] = ()
    unknown: str = ""

    @property
    def problems(self) -> list[str]:
        """The problems, a sentence each."""
        other = [describe_foreign_member(self.group, self.foreign)] if self.foreign else []
        leaderless = find_unreadable_partitions(find_leaderless_partitions(self.found))
        return [*other, *(words for seen in self.found for words in seen.problems), *map(str, leaderless)]

    def to_data(self) -> list[dict[str, Any]]:
        """Return the topics as JSON-able data."""
        return [{**seen.to_data(), "left": self.left.get(seen.ours.name)} for seen in self.found]


def list_topics(app: Celery, settings: Settings, routes: Routes, *, create: bool = False) -> TopicList:
    """Return the topics that the handlers need with the policies in force, and the other topics of the group.

    Parameters:
        create: create missing topics first, even if `kafka_create_topics` forbids it to the bridge.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    admin = admin_client(settings.kafka)
    try:
        with open_decisions(settings) as group:
            changed = changed_handlers(app, routes, find_changed_policies(group.standing))
    except NotDecided as error:
        raise KafkaUnavailable(str(error)) from None
    others = _others(settings)
    surveyed = survey_topics(admin, settings, routes, changed, others)
    if create:
        made = _create_missing(admin, [seen.ours for seen in surveyed if seen.use == "needed"])
        # A broker may list new topics and partitions some moments after its controller has created them.
        until = time.monotonic() + ANSWER_WITHIN
        while made and time.monotonic() < until:
            surveyed = survey_topics(admin, settings, routes, changed, others)
            listed = {seen.ours.name: (seen.partitions or 0) - len(seen.leaderless) for seen in surveyed}
            made = {name: count for name, count in made.items() if listed.get(name, 0) < count}
            time.sleep(0.1 if made else 0.0)
    foreign, unknown = _other_application(settings, routes)
    return TopicList(
        surveyed, _count_unsettled(settings, routes, list_waiting_topics(surveyed)), settings.group, foreign, unknown
    )


def _other_application(settings: Settings, routes: Routes) -> tuple[Sequence[str], str]:
    """Return the topics of another application that uses the group, and why that is not known."""
    if (ledger := Ledger.from_settings(settings)) is None:
        return (), ""
    try:
        with closing(ledger):
            foreign = find_foreign_topics(settings, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return (), unknown_members(settings.group, str(error))
    return foreign or (), unknown_members(settings.group) if foreign is None else ""


def _others(settings: Settings) -> frozenset[str] | None:
    """Return the sources that living members of the group handle; `None` if Redis does not say it."""
    if (ledger := Ledger.from_settings(settings)) is None:
        return frozenset()
    try:
        with closing(ledger):
            return find_living_sources(ledger)
    except LedgerUnavailable:
        return None


def _count_unsettled(settings: Settings, routes: Routes, names: list[str]) -> dict[str, int]:
    """Return by topic the records that are not committed, or are committed and have not ended."""
    there = ExtentReader().read(settings, names) if names else []
    counts = dict.fromkeys(names, 0)
    for extent in there:
        counts[extent.topic] += extent.lag
    if settings.ledger_url is None or not there:
        return counts
    try:
        with open_ledger(settings, routes.topics) as (ledger, catalog):
            ids = {name: catalog.id_of(name) for name in names}
            for topic, count in count_handed_records(ledger, counts.__contains__, there, ids).items():
                counts[topic] += count
    except LedgerUnavailable:
        return {}
    return counts


def _create_missing(admin: AdminClient, wanted: list[ManagedTopic]) -> dict[str, int]:
    """Create the missing topics except sources, and add missing partitions; return what is new.

    The owner of a source creates it, because only the owner knows how many partitions it needs.

    Returns:
        by topic the partitions that it has at least.
    """
    cluster = read_cluster(admin)
    known, sources = cluster.named, cluster.shapes
    made = [ours.name for ours in wanted if ours.kind is TopicKind.CONTROL and ours.name not in known]
    for name in made:
        used = {ours.name for ours in wanted if ours.kind is TopicKind.SOURCE}
        create_control_topic(admin, name, {topic: sources[topic] for topic in used if topic in sources})
    beside = [ours for ours in wanted if ours.source in sources and ours.kind is not TopicKind.SOURCE]
    made += create_topics(admin, [ours for ours in beside if ours.name not in known], sources)
    there = [ours for ours in beside if ours.name in sources]
    small = [ours for ours in there if sources[ours.name].partitions < ours.shape(sources[ours.source]).partitions]
    return dict.fromkeys(made, 1) | add_partitions(admin, small, sources)
