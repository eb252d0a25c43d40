"""Letters copied elsewhere, planned: to a sandbox, to another environment, to whoever looks into them."""

from dataclasses import dataclass, replace

from bridge.deadletters.copying.copying import check_topic, there
from bridge.deadletters.copying.target import Target
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.plan.plan import Counts, Options, Plan, What
from bridge.deadletters.store import items, plans, trail, weighing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.matching import matching
from bridge.errors import CopyRefused
from bridge.handlers import Routes
from bridge.kafka import admin_client
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.cluster import all_topics
from bridge.topics.names import TopicNames
from bridge.upkeep.facts import letters as letters_said


@dataclass(frozen=True)
class Copies:
    """Copies of letters. Every method raises DeskUnavailable where the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def plan(
        self,
        asked: Filter,
        topic: str,
        to: Target | None,
        options: Options,
        by: str,
        why: str = "",
        *,
        force: bool = False,
    ) -> Plan:
        """A plan that copies the letters of a filter to a topic, whatever their status; nothing is sent yet.

        Parameters:
            to: another Kafka; `None`: the letters' own.
            force: also into a topic that this group's bridges or workers read or write.

        Raises:
            CopyRefused: there is no such topic, it is one of ours, or it is not said how to get into that Kafka.
            KafkaUnavailable: that Kafka did not answer.
        """
        check_topic(self.settings, topic)
        self._check(topic, to, force=force)
        where = {} if to is None else {"addresses": to.addresses, "file": to.file}
        whole = replace(options, canary=False, target={"topic": topic, **where})
        with self.database.writing() as connection:
            plan_id, at = plans.add(connection, What.COPY, by, why, asked.to_data(), whole)
            count = items.freeze(connection, plan_id, matching(asked), canary=False)
            there = topic if to is None else f"{topic} of {to.name}"
            words = f"plan {plan_id}: to copy {letters_said(count)} to {there}" + (f": {why}" if why else "")
            trail.write(connection, at, by, "copy", words, plan_id=plan_id)
            handlers = weighing.by_handler(connection, plan_id)
            counts = Counts(letters=sum(sum(reasons.values()) for reasons in handlers.values()), handlers=handlers)
            plans.counted(connection, plan_id, counts)
            made = plans.one(connection, plan_id)
        assert made is not None
        return made

    def _check(self, topic: str, to: Target | None, *, force: bool) -> None:
        found = there(self.settings, to, topic)
        here = to is None or found.id == all_topics(admin_client(self.settings.kafka)).id
        if here and not force and (what := ours(self.settings, self.routes, topic)):
            raise CopyRefused(
                f"{topic!r} is {what}: what is copied there is handled, or counted, like any other record of it. "
                "To copy into it all the same: --force."
            )


def ours(settings: Settings, routes: Routes, topic: str) -> str:
    """What a topic is to this group; empty: nothing (pure)."""
    names = TopicNames.of(settings)
    if topic in routes.topics:
        return "a topic that handlers read"
    if topic == names.control:
        return "the topic of what is decided for the group"
    if (found := Belongings(names, routes.topics).of([topic]).get(topic)) is not None:
        return f"the {found.kind} topic of {found.source!r}"
    source = next((source for source in routes.topics if names.dead_letters(source) == topic), None)
    return "" if source is None else f"the dead-letter topic of {source!r}"
