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
from bridge.kafka.managed_topic import ReplicaState
from bridge.kafka.partition_offsets import group_unreadable
from bridge.problems.problem import Problem, make_problem
from bridge.problems.topic_problem_rows import REPLICAS_OUT_OF_SYNC, RETRIES_OVERDUE, TIER_UNUSED, TOPIC_UNFIT

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
        yield make_problem(
            TOPIC_UNFIT,
            "refused",
            since=since,
            many=len(refused),
            topics=format_count(len(refused), "topic"),
            began=format_known_since(since, facts.now),
            refused=shown,
        )


def find_unfit_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic of the group that is missing or misconfigured."""
    for tier in facts.tiers:
        refused = " Until then no bridge starts again, and nothing is parked there." if tier.refused else ""
        holds = f" It holds {format_record_count(tier.records)}." if tier.records else ""
        for words in tier.problems:
            yield make_problem(
                TOPIC_UNFIT,
                "unfit",
                topic=tier.source,
                many=tier.records,
                lost=None,
                fault=words[0].upper() + words[1:] + refused + holds,
                unfit=tier.topic,
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
    yield make_problem(
        REPLICAS_OUT_OF_SYNC,
        "out of sync",
        topic=next(iter(behind)) if len(behind) == 1 else None,
        many=partitions,
        partitions=format_count(partitions, "partition", "have"),
        topics=f"{shown}{more}",
        refused=refused,
    )


def find_unreadable_partitions(unreadable: Mapping[Place, str]) -> Iterator[Problem]:
    """Yield one problem for all partitions that Kafka cannot read.

    Parameters:
        unreadable: by partition, the reason.
    """
    if not unreadable:
        return
    topics = {topic for topic, _ in unreadable}
    yield make_problem(
        REPLICAS_OUT_OF_SYNC,
        "unreadable",
        topic=topics.pop() if len(topics) == 1 else None,
        many=len(unreadable),
        lost=None,
        partitions=f"{format_count(len(unreadable), 'partition')} cannot",
        places="; ".join(group_unreadable(unreadable)),
        them="it" if len(unreadable) == 1 else "them",
    )


def find_drained_tiers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each retry topic with records that no handler of a running member uses any more."""
    known = {handler.name for handler in facts.handlers}
    states = (facts.bridges or {}).values()
    elsewhere = {topic for state in states for topic, names in state.get("routes", {}).items() if {*names} - known}
    for tier in facts.tiers:
        if not tier.records or tier.source in elsewhere:
            continue
        if tier.use == "drained":
            yield make_problem(
                TIER_UNUSED,
                "unused",
                topic=tier.source,
                many=tier.records,
                delay=format_span(tier.delay or 0),
                tier=tier.topic,
                records=format_record_count(tier.records),
            )
        elif tier.use == "abandoned":
            yield make_problem(
                TIER_UNUSED,
                "abandoned",
                topic=tier.source,
                many=tier.records,
                tier=tier.topic,
                records=format_record_count(tier.records),
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
        for number, due in tier.find_first_due(facts.find_halted_handlers(tier.source)).items():
            shown = f"{tier.topic}-{number}"
            why = paused.get(shown, "" if shown in assigned else "no bridge has it")
            if facts.now - due < OVERDUE or why == PauseReason.HALTED or (young and why == "no bridge has it"):
                continue
            grouped.setdefault(why, []).append((due, (tier.topic, number)))
        for why, overdue in sorted(grouped.items()):
            yield _describe_overdue(facts, tier, why, overdue)


def _describe_overdue(facts: GroupFacts, tier: TopicFacts, why: str, overdue: list[tuple[float, Place]]) -> Problem:
    since = min(due for due, _ in overdue)
    places = ", ".join(f"{topic}-{number}" for _, (topic, number) in sorted(overdue, key=lambda each: each[1])[:5])
    count = sum(tier.lag[number] for _, (_, number) in overdue)
    return make_problem(
        RETRIES_OVERDUE,
        topic=tier.source,
        since=since,
        many=count,
        tier=tier.topic,
        began=format_since(since, facts.now),
        records=format_record_count(count),
        partitions=places,
        cause=f" ({why})" if why else "",
    )
