"""`bridge topics`: which topics the handlers need, which there are, and what is wrong with them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from celery import Celery

from bridge.commands.decisions import decisions
from bridge.commands.opened import opened
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided
from bridge.handlers import Routes, changed_handlers
from bridge.kafka import AdminClient, admin_client
from bridge.ledger import Ledger
from bridge.ledger.members import living_sources
from bridge.ledger.own import on_the_way
from bridge.records.policies import changed_policies
from bridge.settings import Settings
from bridge.topics.cluster import ANSWER_WITHIN, all_topics
from bridge.topics.extents import extents
from bridge.topics.making import grow, make, make_control
from bridge.topics.ours import Kind, Ours
from bridge.topics.survey import Seen, lying, survey
from bridge.upkeep.group_members import find_foreign_topics, foreign_member, unknown_members


class Listed(NamedTuple):
    """What was found, and by retry and replay topic how many records are not settled yet.

    None is counted where the ledger does not answer: what is handed off is known by it alone.

    Attributes:
        foreign: the topics of another application that uses the group.
        unknown: why it is not known whether there is one, a sentence; empty: it is known.
    """

    found: list[Seen]
    left: Mapping[str, int]
    group: str = ""
    foreign: Sequence[str] = ()
    unknown: str = ""

    @property
    def problems(self) -> list[str]:
        """What is wrong, a sentence each."""
        other = [foreign_member(self.group, self.foreign)] if self.foreign else []
        return [*other, *(words for seen in self.found for words in seen.problems)]

    def to_data(self) -> list[dict[str, Any]]:
        """As JSON-able data."""
        return [{**seen.to_data(), "left": self.left.get(seen.ours.name)} for seen in self.found]


def topics(app: Celery, settings: Settings, routes: Routes, *, create: bool = False) -> Listed:
    """List the topics of the handlers, as their policies are in force, and those of ours beside them.

    Parameters:
        create: make what is missing first, also where the bridge may not (`kafka_create_topics`).

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    admin = admin_client(settings.kafka)
    try:
        with decisions(settings) as group:
            changed = changed_handlers(app, routes, changed_policies(group.standing))
    except NotDecided as error:
        raise KafkaUnavailable(str(error)) from None
    others = _others(settings)
    found = survey(admin, settings, routes, changed, others)
    if create:
        made = _create(admin, [seen.ours for seen in found if seen.use == "needed"])
        # A broker may tell of what its controller has made some moments later.
        until = time.monotonic() + ANSWER_WITHIN
        while made and time.monotonic() < until:
            found = survey(admin, settings, routes, changed, others)
            made -= {seen.ours.name for seen in found if seen.partitions is not None}
            time.sleep(0.1 if made else 0.0)
    foreign, unknown = _other_application(admin, settings, routes)
    return Listed(found, _left(settings, routes, lying(found)), settings.group, foreign, unknown)


def _other_application(admin: AdminClient, settings: Settings, routes: Routes) -> tuple[Sequence[str], str]:
    """Return the topics of another application that uses the group, and why that is not known."""
    if (ledger := Ledger.of(settings)) is None:
        return (), ""
    try:
        with closing(ledger):
            found = find_foreign_topics(admin, settings, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return (), unknown_members(settings.group, str(error))
    return found or (), unknown_members(settings.group) if found is None else ""


def _others(settings: Settings) -> frozenset[str] | None:
    """Return the sources that living members of the group handle; `None` if Redis does not say it."""
    if (ledger := Ledger.of(settings)) is None:
        return frozenset()
    try:
        with closing(ledger):
            return living_sources(ledger)
    except LedgerUnavailable:
        return None


def _left(settings: Settings, routes: Routes, names: list[str]) -> dict[str, int]:
    """By topic, what is not committed, and what is and has not ended."""
    there = extents(settings, names) if names else []
    counts = dict.fromkeys(names, 0)
    for extent in there:
        counts[extent.topic] += extent.lag
    if settings.ledger_url is None or not there:
        return counts
    try:
        with opened(settings, routes.topics) as (ledger, catalog):
            ids = {name: catalog.id_of(name) for name in names}
            for topic, count in on_the_way(ledger, counts.__contains__, there, ids).items():
                counts[topic] += count
    except LedgerUnavailable:
        return {}
    return counts


def _create(admin: AdminClient, wanted: list[Ours]) -> set[str]:
    """Make what is missing but sources; return the names.

    A source is its producers' to make: how many partitions it needs nobody here can tell.
    """
    cluster = all_topics(admin)
    known, sources = cluster.named, cluster.shapes
    made = {ours.name for ours in wanted if ours.kind is Kind.CONTROL and ours.name not in known}
    for name in made:
        make_control(admin, name)
    beside = [ours for ours in wanted if ours.source in sources and ours.kind is not Kind.SOURCE]
    made |= {*make(admin, [ours for ours in beside if ours.name not in known], sources)}
    there = [ours for ours in beside if ours.name in sources]
    grow(admin, [o for o in there if sources[o.name].partitions < sources[o.source].partitions], sources)
    return made
