"""The problems of the group's topics: missing, misconfigured, replicas out of sync, overdue or unused (pure)."""

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason
from bridge.formats.text_forms import format_count
from bridge.jobs.group_facts import (
    GroupFacts,
    TopicFacts,
    format_known_since,
    format_record_count,
    format_since,
    format_span,
)
from bridge.jobs.problem import Problem
from bridge.kafka.managed_topic import ReplicaState

#: Seconds after its due time in which a record must be handed off.
OVERDUE: Final = 60.0
#: Seconds that a bridge has after its start to take its partitions.
YOUNG: Final = 30.0


def find_unmade_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem if Kafka has refused to create topics of the group."""
    states = [*(facts.bridges or {}).values()]
    refused = sorted({text for state in states for text in state.get("unmade", ())})
    if refused:
        # Bridges of old versions do not say since when.
        since = min((at for state in states for at in state.get("unmade_since", ())), default=None)
        shown = "; ".join(refused[:5]) + (f"; and {len(refused) - 5} more" if len(refused) > 5 else "")
        yield Problem(
            f"Kafka has refused to create {format_count(len(refused), 'topic')} of the group"
            f"{format_known_since(since, facts.now)}: {shown}. The bridges' logs say why; they "
            "retry each minute. `bridge topics --create` creates them too.",
            "topic",
            f"Kafka has refused to create {format_count(len(refused), 'topic')} of the group",
            since=since,
            many=len(refused),
            of="topics",
            lost=0,
            do="see the bridges' logs, then `bridge topics --create`",
        )


def find_unfit_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic of the group that is missing or misconfigured."""
    for tier in facts.tiers:
        refused = " Until then no bridge starts again, and nothing is parked there." if tier.refused else ""
        for words in tier.problems:
            yield Problem(
                words[0].upper()
                + words[1:]
                + refused
                + (f" It holds {format_record_count(tier.records)}." if tier.records else ""),
                "topic",
                f"Topic {tier.topic!r} is missing or misconfigured",
                topic=tier.source,
                many=tier.records,
                of="records",
                lost=None,
                do="`bridge topics` says what to do",
            )


def find_unsynced_replicas(topics: Mapping[str, ReplicaState]) -> Iterator[Problem]:
    """Yield one problem for all topics of the group and its sources with replicas out of sync."""
    behind = {name: replicas for name, replicas in sorted(topics.items()) if replicas.behind}
    if not behind:
        return
    partitions, refusing = (sum(counts) for counts in zip(*behind.values(), strict=True))
    shown = ", ".join(f"{name}: {replicas.behind}" for name, replicas in [*behind.items()][:5])
    more = f" and {format_count(len(behind) - 5, 'more topic')}" if len(behind) > 5 else ""
    refused = ""
    if refusing:
        refused = (
            f" {refusing:,} of them have fewer than min.insync.replicas: nothing can be written there with acks=all."
        )
    yield Problem(
        f"{format_count(partitions, 'partition', 'have')} replicas that are not in sync ({shown}{more}): a "
        "broker is down or too slow, "
        f"and if another fails, records may be lost.{refused} Check Kafka's brokers, and "
        "`kafka-topics.sh --describe --under-replicated-partitions`.",
        "replicas",
        f"{format_count(partitions, 'partition', 'have')} replicas that are not in sync",
        topic=next(iter(behind)) if len(behind) == 1 else None,
        many=partitions,
        of="partitions",
        do="check Kafka's brokers",
    )


def find_drained_tiers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each retry topic with records that no handler of a running member uses any more."""
    known = {handler.name for handler in facts.handlers}
    states = (facts.bridges or {}).values()
    elsewhere = {topic for each in states for topic, names in each.get("routes", {}).items() if {*names} - known}
    for tier in facts.tiers:
        if not tier.records or tier.source in elsewhere:
            continue
        if tier.use == "drained":
            yield Problem(
                f"No handler parks for {format_span(tier.delay or 0)} any more, and {tier.topic!r} holds "
                f"{format_record_count(tier.records)}: they run when they are due. Delete the topic when it is empty.",
                "drained",
                f"No handler parks in {tier.topic!r} any more",
                topic=tier.source,
                many=tier.records,
                of="records",
                do="delete the topic when it is empty",
            )
        elif tier.use == "abandoned":
            yield Problem(
                f"{tier.topic!r} holds {format_record_count(tier.records)} of {tier.source!r}, which no handler names "
                f"any more: "
                "they stay there. Start the application that handles that topic, or deploy its handlers again. The "
                "records may be those of another application in this group that is stopped now: give it its own "
                "BRIDGE_GROUP, and delete nothing.",
                "drained",
                f"{tier.topic!r} belongs to a topic that no handler names",
                topic=tier.source,
                many=tier.records,
                of="records",
                do="start the application that handles that topic, or give another one its own BRIDGE_GROUP",
            )


def find_overdue_tiers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each retry topic and reason with overdue records."""
    if not facts.bridges:
        # The problem that no bridge runs includes the due records.
        return
    paused = {place: why for state in facts.bridges.values() for place, why in state["paused"].items()}
    assigned = {place for state in facts.bridges.values() for place in state["assigned"]}
    young = any(facts.now - state.get("started", 0.0) < YOUNG for state in facts.bridges.values())
    for tier in facts.tiers:
        grouped: dict[str, list[tuple[float, Place]]] = {}
        for number, due in tier.first_due.items():
            shown = f"{tier.topic}-{number}"
            why = paused.get(shown, "" if shown in assigned else "no bridge has it")
            if facts.now - due < OVERDUE or why == PauseReason.HALTED or (young and why == "no bridge has it"):
                continue
            grouped.setdefault(why, []).append((due, (tier.topic, number)))
        for why, found in sorted(grouped.items()):
            yield _describe_overdue(facts, tier, why, found)


def _describe_overdue(facts: GroupFacts, tier: TopicFacts, why: str, found: list[tuple[float, Place]]) -> Problem:
    since = min(due for due, _ in found)
    places = ", ".join(f"{topic}-{number}" for _, (topic, number) in sorted(found, key=lambda each: each[1])[:5])
    count = sum(tier.lag[number] for _, (_, number) in found)
    cause = f" ({why})" if why else ""
    return Problem(
        f"Records in {tier.topic!r} are overdue, {format_since(since, facts.now)}: up to "
        f"{format_record_count(count)} of {places} are "
        f"due and not handed off{cause}. See the queues' lengths and the bridges' logs; more bridges help only if "
        "workers are idle.",
        "overdue",
        f"Records in {tier.topic!r} are overdue",
        topic=tier.source,
        since=since,
        many=count,
        of="records",
        do="see the queues' lengths and the bridges' logs",
    )
