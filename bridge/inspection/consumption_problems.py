"""The problems of halts, dependencies, bridges, lag, hot keys, and partitions that are paused or have no bridge
(pure).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from bridge.formats.halt_scope import HaltScope
from bridge.formats.pause_reasons import ADD_WORKERS, PauseReason, parse_pause_reason
from bridge.formats.text_forms import format_count, format_share, inflect_verb
from bridge.inspection.redis_problems import is_full_redis_obstacle, list_obstacles
from bridge.jobs.group_facts import (
    DependencyDown,
    GroupFacts,
    format_known_since,
    format_record_count,
    format_since,
    format_span,
    format_utc,
    format_waiting_records,
)
from bridge.ledger.breaker_state import SET_A_LIMIT
from bridge.problems.bridge_problem_rows import (
    BRIDGE_BLOCKED,
    BRIDGES_DOWN,
    DEPENDENCY_DOWN,
    DEPENDENCY_UNNAMED,
    HANDLER_HALTED,
    PARTITION_UNASSIGNED,
    TOPIC_HALTED,
    TOPIC_NOT_CONSUMED,
)
from bridge.problems.delivery_problem_rows import KEY_HOT, KEYS_HELD
from bridge.problems.problem import Problem, make_problem
from bridge.problems.topic_problem_rows import CONSUMER_LAG, PARTITIONS_PAUSED, TOPIC_DYING

#: Seconds after which a paused partition is a problem, and a partition without a bridge.
PAUSED_LONG: Final = 60.0
UNASSIGNED_LONG: Final = 30.0
#: Seconds for which most deliveries of a partition must have waited for one key.
HOT_LONG: Final = 60.0


def find_halted_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic that a person or a handler has halted."""
    for topic, halt in sorted(facts.halts.items()):
        cause = halt.data or {}
        record = f" The delivery of {cause['record']} then runs first." if "record" in cause else ""
        waiting, count = "", None
        if facts.lag is not None and topic in facts.lag:
            count = facts.lag[topic] + facts.parked(topic)
            waiting = f" {format_waiting_records(facts.lag[topic], facts.parked(topic))}."
        if (aside := facts.aside.get(topic)) and aside.messages:
            waiting += f" Set aside until then: {aside.words}."
        yield make_problem(
            TOPIC_HALTED,
            topic=topic,
            since=halt.since,
            many=count,
            began=format_since(halt.since, facts.now),
            by=halt.by,
            why=halt.why.rstrip("."),
            waiting=waiting,
            record=record,
        )


def find_handler_halts(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each halted handler and key."""
    for each in facts.handler_halts:
        scope, words = each.scope, each.scope.words
        current = scope.under_current_name(facts.current_names)
        renamed = "" if current == scope else f" (now {current.handler!r})"
        yield make_problem(
            HANDLER_HALTED,
            topic=scope.topic,
            handler=current.handler,
            since=each.halt.since,
            many=each.aside.deliveries,
            subject=f"{words[0].upper()}{words[1:].rstrip(',')}{renamed}",
            comma="," if words.endswith(",") else "",
            began=format_since(each.halt.since, facts.now),
            by=each.halt.by,
            why=each.halt.why.rstrip("."),
            waiting=f" Waiting for it: {each.aside.words}." if each.aside.messages else "",
            others=" All else of the topic goes on." if _do_others_run(facts, current) else "",
            arguments=scope.arguments,
        )


def _do_others_run(facts: GroupFacts, scope: HaltScope) -> bool:
    """Return whether other deliveries of the topic than those of a halted handler or key run."""
    if scope.topic in facts.halts:
        return False
    halted = facts.find_halted_handlers(scope.topic)
    running = {handler.name for handler in facts.handlers if scope.topic in handler.topics} - halted
    return bool(running - ({scope.handler} if scope.key is None else set()))


def find_open_breakers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each open circuit breaker."""
    for breaker in facts.breakers:
        if breaker.state == "ramping":
            continue
        waiting = f" Waiting: {breaker.aside.words}." if breaker.aside.messages else ""
        yield make_problem(
            DEPENDENCY_DOWN,
            handler=breaker.handlers[0] if len(breaker.handlers) == 1 else None,
            since=breaker.since,
            many=breaker.aside.deliveries,
            dependency=breaker.dependency,
            began=format_since(breaker.since, facts.now),
            why=breaker.why.rstrip("."),
            waiting=waiting,
            needing=", ".join(breaker.handlers),
            trials=_describe_trials(breaker, facts.now),
            example=breaker.handlers[0] if breaker.handlers else "HANDLER",
        )


def _describe_trials(breaker: DependencyDown, now: float) -> str:
    """Return sentences on the breaker's trial deliveries: the last, the next, and those that hang."""
    ahead = f"in {format_span(breaker.next - now)}" if breaker.next > now else "now"
    if breaker.state == "probing":
        trials = f"A trial delivery is in flight, {format_since(breaker.tried, now)}; another follows {ahead}. "
    elif breaker.tried:
        trials = f"The last trial began {format_utc(breaker.tried)}; the next may begin {ahead}. "
    else:
        trials = f"No trial has begun yet; the first may begin {ahead}. "
    if breaker.silent:
        trials += f"{breaker.silent} earlier trials did not end in time, so trials get rarer: {SET_A_LIMIT}. "
    return trials


def find_unnamed_dependencies(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each dependency that no handler names any more, and that messages still wait for."""
    for dependency, aside in sorted(facts.unnamed.items()):
        yield make_problem(DEPENDENCY_UNNAMED, many=aside.deliveries, dependency=dependency, waiting=aside.words)


def find_missing_bridges(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem if no bridge runs, or if none consumes a topic or a partition."""
    if facts.bridges is None:
        return
    if not facts.bridges:
        waiting, left = "new records wait in Kafka", None
        if facts.lag is not None:
            left = sum(facts.lag.values()) + facts.parked()
            waiting = format_waiting_records(sum(facts.lag.values()), facts.parked())
        due = min((at for tier in facts.tiers if tier.waits for at in tier.first_due.values()), default=facts.now)
        late = f", the first of them due {format_since(due, facts.now)}" if due < facts.now else ""
        last = facts.seen.get(f"group {facts.group}")
        yield make_problem(
            BRIDGES_DOWN,
            since=last,
            many=left,
            bridge_group=facts.group,
            began=format_since(last, facts.now),
            waiting=waiting,
            late=late,
        )
        return
    topics = {topic for state in facts.bridges.values() for topic in state.get("topics", ())}
    for topic in sorted({topic for handler in facts.handlers for topic in handler.topics} - topics):
        count = (facts.lag or {}).get(topic, 0)
        # A bridge that has ended may have consumed it until the youngest started.
        since = _latest(facts.bridges, "started")
        yield make_problem(
            TOPIC_NOT_CONSUMED,
            topic=topic,
            since=since,
            many=count,
            bridge_group=facts.group,
            began=_format_at_least(since, facts.now),
            waiting=format_count(count, "record", "wait"),
        )
    yield from _find_unassigned_partitions(facts, facts.bridges)


def find_obstacles(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each obstacle that keeps bridges from consuming, once for all of them."""
    grouped: dict[str, tuple[str, float | None, list[str]]] = {}
    is_full = any(redis.full for redis in facts.memory)
    for name, state in (facts.bridges or {}).items():
        for text, at in list_obstacles(state):
            if is_full and is_full_redis_obstacle(text):
                continue
            # Every bridge waits for Kafka and for its group at its start.
            if text == "joining the consumer group" and at is not None and facts.now - at < UNASSIGNED_LONG:
                continue
            kind = text.partition(":")[0]
            first, since, names = grouped.get(kind, (text, at, []))
            earlier = since if at is None or since is None else min(at, since)
            grouped[kind] = (first, earlier, [*names, name])
    for text, since, names in grouped.values():
        yield make_problem(
            BRIDGE_BLOCKED,
            since=since,
            many=len(names),
            bridges=format_share(len(names), len(facts.bridges or {}), "bridge", "consume"),
            began=format_since(since, facts.now),
            obstacle=text.rstrip("."),
        )


def find_consumer_lag(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic with growing consumer lag; paused partitions have a problem of their own."""
    grouped: dict[str, list[tuple[str, int, float]]] = {}
    for state in (facts.bridges or {}).values():
        for lag in state.get("behind", ()):
            if lag["topic"] in facts.halts or (lag["topic"], lag["partition"]) in facts.held_back_places:
                continue
            place = f"{lag['topic']}-{lag['partition']}"
            if facts.now - state.get("paused_since", {}).get(place, facts.now) < PAUSED_LONG:
                grouped.setdefault(lag["topic"], []).append((place, lag["count"], lag["since"]))
    for topic, partitions in sorted(grouped.items()):
        places, count = sorted(place for place, *_ in partitions), sum(count for _, count, _ in partitions)
        shown = ", ".join(places[:5]) + (" …" if len(places) > 5 else "")
        began = min(since for *_, since in partitions)
        yield make_problem(
            CONSUMER_LAG,
            topic=topic,
            since=began,
            many=count,
            began=format_since(began, facts.now),
            records=format_count(count, "record", "are"),
            places=shown,
            running=len(facts.bridges or {}),
        )


def find_dead_holds(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each handler and topic whose dead deliveries hold those behind them in their order."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for state in (facts.bridges or {}).values():
        for each in state.get("dead_holds", ()):
            found.setdefault((each["topic"], each["handler"]), []).append(each)
    for (topic, handler), holds in sorted(found.items()):
        dead, behind = (sum(each[name] for each in holds) for name in ("dead", "behind"))
        first = min(holds, key=lambda each: (each["partition"], each["offset"]))
        since = min(each["since"] for each in holds)
        waiting = f"{format_count(behind, 'delivery')} that {inflect_verb(behind, 'are')} read"
        yield make_problem(
            KEYS_HELD,
            topic=topic,
            handler=handler,
            since=since,
            many=behind,
            dead=format_count(dead, "dead delivery"),
            hold=inflect_verb(dead, "hold"),
            began=format_since(since, facts.now),
            behind=f"{waiting} {inflect_verb(behind, 'wait')}",
            first=f"{topic}-{first['partition']}-{first['offset']}",
        )


def find_hot_keys(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each key that most deliveries of a partition have waited for, for a minute or longer."""
    for state in (facts.bridges or {}).values():
        for hot_key in state.get("hot_keys", ()):
            scopes = (held.scope.under_current_name(facts.current_names) for held in facts.handler_halts)
            halted = {(scope.topic, scope.handler) for scope in scopes}
            dead = {(held["topic"], held["handler"]) for held in state.get("dead_holds", ())}
            waits = (hot_key["topic"], hot_key["handler"]) in halted | dead or hot_key["topic"] in facts.halts
            if hot_key["seconds"] < HOT_LONG or waits:
                continue
            place, since = f"{hot_key['topic']}-{hot_key['partition']}", max(0.0, facts.now - hot_key["seconds"])
            yield make_problem(
                KEY_HOT,
                topic=hot_key["topic"],
                handler=hot_key["handler"],
                since=since,
                many=hot_key["count"],
                deliveries=f"{format_count(hot_key['count'], 'delivery')} of {hot_key['handler']!r} "
                f"{inflect_verb(hot_key['count'], 'wait')}",
                partition=place,
                began=format_since(since, facts.now),
                offset=hot_key["offset"],
            )


def find_paused_partitions(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each reason for which partitions have been paused for long."""
    grouped: dict[str, tuple[float, list[str]]] = {}
    for state in (facts.bridges or {}).values():
        for place, why in state["paused"].items():
            at = state.get("paused_since", {}).get(place, facts.now)
            reason, _ = parse_pause_reason(why)
            if facts.now - at >= PAUSED_LONG and (reason is None or reason.told_by == PARTITIONS_PAUSED.identifier):
                since, places = grouped.get(why, (at, []))
                grouped[why] = (min(at, since), [*places, place])
    for why, (since, places) in sorted(grouped.items()):
        reason, name = parse_pause_reason(why)
        queue = name if reason is PauseReason.QUEUE_LONG else None
        advice = ADD_WORKERS if reason is None else reason.advice
        length = (
            f" ({format_count(facts.queues[queue], 'message')})"
            if queue and facts.queues and queue in facts.queues
            else ""
        )
        yield make_problem(
            PARTITIONS_PAUSED,
            topic=_topic_of(places),
            queue=queue,
            since=since,
            many=len(places),
            paused=f"{format_count(len(places), 'partition', 'are')} paused",
            began=format_since(since, facts.now),
            why=why,
            length=length,
            resumes="It resumes" if len(places) == 1 else "They resume",
            advice=advice,
            places=f"{', '.join(sorted(places)[:5])}{' …' if len(places) > 5 else ''}",
        )


def find_dying_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic that is paused because too many deliveries die, without a delay."""
    since: dict[str, float] = {}
    for state in (facts.bridges or {}).values():
        for place, why in state["paused"].items():
            reason, topic = parse_pause_reason(why)
            if reason is PauseReason.DEAD_LETTERS:
                at = state.get("paused_since", {}).get(place, facts.now)
                since[topic] = min(at, since.get(topic, at))
    for topic, at in sorted(since.items()):
        yield make_problem(TOPIC_DYING, topic=topic, since=at, began=format_since(at, facts.now))


def _topic_of(places: Collection[str]) -> str | None:
    """Return the topic of these partitions; `None` if there are several."""
    topics = {place.rpartition("-")[0] for place in places}
    return topics.pop() if len(topics) == 1 else None


def _latest(bridges: Mapping[str, Mapping[str, Any]], *names: str) -> float | None:
    """Return the latest of these announced times; `None` if the bridges announce none."""
    return max((float(state[name]) for state in bridges.values() for name in names if name in state), default=None)


def _format_at_least(since: float | None, now: float) -> str:
    """Return `, since 2026-01-31 12:00:05 UTC (7 min) or longer`; empty if no time is known."""
    return "" if since is None else f"{format_known_since(since, now)} or longer"


def _find_unassigned_partitions(facts: GroupFacts, bridges: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield a problem for each topic with partitions that no bridge took in time, unless there is an obstacle."""
    young = any(
        facts.now - max(state.get("started", 0.0), state.get("assigned_since", 0.0)) < UNASSIGNED_LONG
        or state["obstacles"]
        for state in bridges.values()
    )
    if young or facts.partitions is None:
        return
    # Since then no bridge was assigned a partition.
    since = _latest(bridges, "started", "assigned_since")
    assigned = {place for state in bridges.values() for place in state["assigned"]}
    known = {topic for state in bridges.values() for topic in state.get("topics", ())}
    for topic, count in sorted(facts.partitions.items()):
        missing = [str(number) for number in range(count) if f"{topic}-{number}" not in assigned]
        if missing and topic in known:
            count = (facts.lag or {}).get(topic, 0)
            yield make_problem(
                PARTITION_UNASSIGNED,
                topic=topic,
                since=since,
                many=count,
                partitions=", ".join(missing),
                began=_format_at_least(since, facts.now),
                waiting=format_record_count(count),
            )
