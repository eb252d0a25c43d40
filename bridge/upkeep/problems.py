"""What needs a person, as sentences: what, since when, how many, and what to do (pure).

Empty when nothing does. What a bridge or worker mends by itself within a minute is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from bridge.handoff.carriers import Waiting
from bridge.ledger import Change

#: Seconds after which a partition that is paused needs a person, and a bridge one that has no partition.
PAUSED_LONG: Final = 60.0
UNASSIGNED_LONG: Final = 30.0
#: Seconds under way from which on a delivery of a handler that nobody has any more needs a person.
GONE_LONG: Final = 60.0
#: Seconds under way from which on a delivery is too old; with what its handler's own limits and delays allow.
TOO_OLD: Final = 900.0
#: Seconds for which it is told what happened to a log.
TOLD_FOR: Final = 86_400.0
#: Deliveries of a handler that wait for a retry from which on a person is needed, and seconds since the first failure.
FAILING_MANY: Final = 100
FAILING_LONG: Final = 300.0
#: Share of its memory from which on a Redis is nearly full.
NEARLY_FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class HandlerFacts:
    """A handler of the settings: its topics and queue, and the longest wait in seconds that it may see by itself."""

    name: str
    topics: tuple[str, ...]
    queue: str
    longest_wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of one handler and topic of dead letters whose deliveries are still dead; the last one's error."""

    topic: str
    handler: str
    count: int
    since: float
    reason: str
    error: str
    more: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """How a Redis is: bytes used and allowed (0: no limit), and why it does not bring its data to disk."""

    where: str
    used: int = 0
    allowed: int = 0
    disk: str | None = None


@dataclass(frozen=True)
class Facts:
    """What is known, for `problems`; what could not be asked is None.

    Attributes:
        now: Unix time, as all times here.
        handlers: of the settings here.
        silent: why something did not answer, a sentence each.
        lag: per topic, records between the committed offset and the end.
        partitions: per topic, how many.
        bridges, workers: what the living announce.
        seen: when each name was announced last, `queue …`, `handler …` and `group …`.
        queues: messages that wait, per queue.
        retries: messages that wait for their time, per queue.
        oldest: seconds that the oldest delivery has been under way, by topic and handler.
    """

    now: float
    group: str
    handlers: Sequence[HandlerFacts] = ()
    silent: Sequence[str] = ()
    lag: Mapping[str, int] | None = None
    partitions: Mapping[str, int] | None = None
    bridges: Mapping[str, Mapping[str, Any]] | None = None
    workers: Mapping[str, Mapping[str, Any]] | None = None
    seen: Mapping[str, float] = field(default_factory=dict)
    queues: Mapping[str, int] | None = None
    retries: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[tuple[str, str], float] = field(default_factory=dict)
    letters: Sequence[Letters] = ()
    failing: Sequence[Waiting] = ()
    changes: Sequence[Change] = ()
    memory: Sequence[Memory] = ()


def problems(facts: Facts) -> list[str]:
    """Everything that needs a person; what stops most comes first."""
    return [
        *facts.silent,
        *_memory(facts),
        *_bridges(facts),
        *divided_topics(facts).values(),
        *_obstacles(facts),
        *unconsumed_queues(facts).values(),
        *unknown_handlers(facts).values(),
        *_known_to_some(facts),
        *_lost(facts),
        *_changed(facts),
        *_old(facts),
        *_paused(facts),
        *_failing(facts),
        *_dead(facts),
    ]


def when(at: float | None, now: float) -> str:
    """`since 2026-01-31 12:00:05 UTC (7 min)`."""
    if at is None:
        return "and none was seen before"
    return f"since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC ({span(now - at)})"


def span(seconds: float) -> str:
    """A time in its largest unit but one: `7 min`, `3.5 h`."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{max(0.0, seconds):.0f} s"


def unknown_handlers(facts: Facts) -> dict[str, str]:
    """Handlers whose queue is consumed, by workers of which none knows them: a sentence for each name."""
    return {handler.name: sentence for handler in facts.handlers if (sentence := _unknown_to(facts, handler))}


def unconsumed_queues(facts: Facts) -> dict[str, str]:
    """Queues that no living worker consumes: a sentence for each name."""
    if facts.workers is None:
        return {}
    queues = sorted({handler.queue for handler in facts.handlers})
    return {queue: _unconsumed(facts, queue) for queue in queues if not _consumers(facts, queue)}


def divided_topics(facts: Facts) -> dict[str, str]:
    """Topics that one group hands to different handlers, by the bridge that has the partition: a sentence for each."""
    groups: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, state in (facts.bridges or {}).items():
        for topic, handlers in state.get("routes", {}).items():
            groups.setdefault(topic, {}).setdefault(tuple(sorted(handlers)), []).append(name)
    for topic, found in groups.items():
        if here := tuple(sorted(handler.name for handler in facts.handlers if topic in handler.topics)):
            found.setdefault(here, ["here"])
    return {topic: _divided(facts.group, topic, found) for topic, found in sorted(groups.items()) if len(found) > 1}


# One kind of problem each


def _memory(facts: Facts) -> Iterator[str]:
    for redis in facts.memory:
        if redis.allowed and redis.used >= redis.allowed:
            yield (
                f"Redis at {redis.where} is full: {redis.used:,} of {redis.allowed:,} bytes (maxmemory). "
                "Nothing more is handed off, nothing is lost. Raise its maxmemory, or let workers empty the queues."
            )
        elif redis.allowed and redis.used >= redis.allowed * NEARLY_FULL:
            yield (
                f"Redis at {redis.where} is nearly full: {redis.used:,} of {redis.allowed:,} bytes (maxmemory). "
                "Raise its maxmemory, or let workers empty the queues."
            )
        if redis.disk:
            yield f"Redis at {redis.where} does not bring its data to disk: {redis.disk}. See its log and its disk."


def _bridges(facts: Facts) -> Iterator[str]:
    if facts.bridges is None:
        return
    if not facts.bridges:
        waiting = _records(sum((facts.lag or {}).values())) if facts.lag is not None else "what comes"
        since = when(facts.seen.get(f"group {facts.group}"), facts.now)
        yield f"No bridge of group {facts.group!r} runs, {since}: {waiting} in Kafka wait. Start `bridge run`."
        return
    topics = {topic for each in facts.bridges.values() for topic in each.get("topics", ())}
    for topic in sorted({topic for handler in facts.handlers for topic in handler.topics} - topics):
        count = _records((facts.lag or {}).get(topic, 0))
        yield (
            f"No bridge of group {facts.group!r} consumes topic {topic!r}, though it has a handler here: {count} wait. "
            "Restart the bridges with the handlers that are here."
        )
    yield from _unassigned(facts, facts.bridges)


def _divided(group: str, topic: str, found: Mapping[tuple[str, ...], Sequence[str]]) -> str:
    sets = "; ".join(f"{', '.join(handlers)} ({', '.join(names[:5])})" for handlers, names in sorted(found.items()))
    return (
        f"Topic {topic!r} has different handlers in one group, {group!r}: {sets}. Each gets only the partitions of its "
        "own bridges. Is one another application? Give it its own BRIDGE_GROUP; else start all bridges of the group "
        "with the same handlers."
    )


def _unassigned(facts: Facts, bridges: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Partitions that no bridge has, where all have had the time to take them and nothing else hinders."""
    young = any(
        facts.now - each.get("started", 0.0) < UNASSIGNED_LONG or each["obstacles"] for each in bridges.values()
    )
    if young or facts.partitions is None:
        return
    assigned = {place for each in bridges.values() for place in each["assigned"]}
    known = {topic for each in bridges.values() for topic in each.get("topics", ())}
    for topic, count in sorted(facts.partitions.items()):
        missing = [str(number) for number in range(count) if f"{topic}-{number}" not in assigned]
        if missing and topic in known:
            yield (
                f"No bridge has partition {', '.join(missing)} of {topic!r}: "
                f"{_records((facts.lag or {}).get(topic, 0))} of the topic wait. "
                "If it does not pass in a minute, restart the bridges and see their logs."
            )


def _obstacles(facts: Facts) -> Iterator[str]:
    grouped: dict[str, tuple[str, float | None, list[str]]] = {}
    for name, state in (facts.bridges or {}).items():
        times = state.get("obstacles_since") or [None] * len(state["obstacles"])
        for text, at in zip(state["obstacles"], times, strict=False):
            # Every bridge waits for Kafka and for its group at its start.
            if text == "joining the consumer group" and at is not None and facts.now - at < UNASSIGNED_LONG:
                continue
            kind = text.partition(":")[0]
            first, since, names = grouped.get(kind, (text, at, []))
            earlier = since if at is None or since is None else min(at, since)
            grouped[kind] = (first, earlier, [*names, name])
    for text, since, names in grouped.values():
        yield (
            f"{len(names)} of {len(facts.bridges or {})} bridges consume nothing, {when(since, facts.now)}: "
            f"{text.rstrip('.')}. They go on by themselves when that is mended."
        )


def _unconsumed(facts: Facts, queue: str) -> str:
    since = when(facts.seen.get(f"queue {queue}"), facts.now)
    count = (facts.queues or {}).get(queue)
    later = facts.retries.get(queue, 0)
    if count is None:
        waiting = "all waits there"
    elif later:
        waiting = f"{count + later:,} messages wait there, {later:,} of them for their retry"
    else:
        waiting = f"{count:,} messages wait there" if count else "nothing waits there"
    # A ledger that was wiped has lost its queues with it: what is missing there is said beside this.
    safe = "" if count == later == 0 or _missing_of(facts, queue) else ", none of them is lost"
    return (
        f"No worker consumes queue {queue!r}, {since}: {waiting}{safe}. "
        f"Start one: celery -A tasks worker, or with -Q {queue}."
    )


def _missing_of(facts: Facts, queue: str) -> bool:
    """Whether something of a handler of this queue is unaccounted for."""
    names = {handler.name for handler in facts.handlers if handler.queue == queue}
    return any(each["handler"] in names for s in (facts.bridges or {}).values() for each in s.get("unaccounted", ()))


def _known_to_some(facts: Facts) -> Iterator[str]:
    for handler in facts.handlers:
        consumers = _consumers(facts, handler.queue)
        without = [name for name, state in consumers.items() if handler.name not in state["handlers"]]
        if without and len(without) < len(consumers):
            yield (
                f"{len(without)} of {len(consumers)} workers of queue {handler.queue!r} do not know handler "
                f"{handler.name}: {_named(without, consumers)}. Its deliveries wait there for one that does. "
                "Deploy the same handlers to them."
            )


def _unknown_to(facts: Facts, handler: HandlerFacts) -> str | None:
    consumers = _consumers(facts, handler.queue)
    if not consumers or any(handler.name in state["handlers"] for state in consumers.values()):
        return None
    since = when(facts.seen.get(f"handler {handler.name}"), facts.now)
    waiting = f"{(facts.queues or {}).get(handler.queue, 0):,} messages wait in that queue"
    return (
        f"No worker knows handler {handler.name}, {since}: {_named(list(consumers), consumers)} consume its queue "
        f"{handler.queue!r}; {waiting}. Deploy it to the workers, or see their HANDLERS and `imports`."
    )


def _lost(facts: Facts) -> Iterator[str]:
    for state in (facts.bridges or {}).values():
        for each in state.get("unaccounted", ()):
            yield (
                f"{each['count']:,} records of {each['topic']}-{each['partition']} are unaccounted for by "
                f"{each['handler']}, {when(each['since'], facts.now)}: committed, and the ledger does not know how "
                f"they ended. `bridge audit {each['topic']}` tells which were lost with a ledger and which are open; "
                f"`bridge reset {each['topic']} --to OFFSET` lets them run, what is settled apart."
            )


def _changed(facts: Facts) -> Iterator[str]:
    """What happened to logs in the last day; `bridge audit` lists it for longer."""
    for each in facts.changes:
        if facts.now - each.at > TOLD_FOR:
            continue
        place, since = f"{each.topic}-{each.partition}", when(each.at, facts.now)
        if each.lost:
            yield (
                f"Kafka's retention took {_records(each.lost)} of {place} unread, {since}: offsets {each.first} to "
                f"{each.end - 1}. They are gone. Keep records for longer (retention.ms), and the bridges running; "
                "said for a day."
            )
        elif each.what != "expired":
            yield (
                f"The log of {place} {'was ' if each.what == 'made anew' else ''}{each.what}, {since}, from offset "
                f"{each.first} on: other records lie there now. If nobody meant it, see Kafka's disks and elections; "
                "said for a day."
            )


def _old(facts: Facts) -> Iterator[str]:
    limits = {handler.name: max(TOO_OLD, 2 * handler.longest_wait) for handler in facts.handlers}
    queues = {handler.name: handler.queue for handler in facts.handlers}
    for (topic, name), seconds in sorted(facts.oldest.items()):
        if name not in queues and facts.workers is not None and not _known_anywhere(facts, name):
            if seconds >= GONE_LONG:
                yield _gone(facts, topic, name, seconds)
            continue
        # Without a worker that runs it the sentence about that says it.
        knowing = facts.workers is None or name not in queues or _knowing(facts, name, queues[name])
        if seconds >= limits.get(name, TOO_OLD) and knowing:
            yield (
                f"The oldest delivery of {topic!r} to {name} has been under way "
                f"{when(facts.now - seconds, facts.now)}, and is neither settled nor waiting for its retry. "
                "See what the workers run "
                "(celery -A tasks inspect active) and whether they are enough."
            )


def _gone(facts: Facts, topic: str, name: str, seconds: float) -> str:
    return (
        f"Deliveries of {topic!r} to {name} wait, the oldest {when(facts.now - seconds, facts.now)}: that handler was "
        "renamed or removed, and no worker knows it. Deploy it to a worker once more, or let them become dead letters "
        "(unknown_handler, after kafka_unknown_for)."
    )


def _paused(facts: Facts) -> Iterator[str]:
    grouped: dict[str, tuple[float, list[str]]] = {}
    for state in (facts.bridges or {}).values():
        for place, why in state["paused"].items():
            at = state.get("paused_since", {}).get(place, facts.now)
            if facts.now - at >= PAUSED_LONG and why != "handoff":
                since, places = grouped.get(why, (at, []))
                grouped[why] = (min(at, since), [*places, place])
    for why, (since, places) in sorted(grouped.items()):
        queue = why.removeprefix("queue ") if why.startswith("queue ") else None
        length = f" ({facts.queues[queue]:,} messages)" if queue and facts.queues and queue in facts.queues else ""
        yield (
            f"{len(places)} partitions are paused, {when(since, facts.now)}: {why}{length}. They go on when that is "
            f"less; add workers if it does not fall. ({', '.join(sorted(places)[:5])}{' …' if len(places) > 5 else ''})"
        )


def _failing(facts: Facts) -> Iterator[str]:
    for each in facts.failing:
        count = f"{'At least ' if each.more else ''}{each.count:,} deliver{'y' if each.count == 1 else 'ies'}"
        since = when(each.since, facts.now) if each.since else "since when is not known"
        match each.kind:
            case "held":
                yield (
                    f"{each.handler} asks to stop its topic, {since}: {each.error}. {count} kept, and run again every "
                    "30 s. Mend the cause: they go on by themselves."
                )
            case "unpublished":
                yield (
                    f"Kafka does not take the dead letters of {count} of {each.handler}, the first failed {since}: "
                    f"{each.error}. They are tried again. See the workers' log, and the topic of the dead letters."
                )
            case _ if each.count >= FAILING_MANY or (each.since and facts.now - each.since >= FAILING_LONG):
                yield (
                    f"{count} of {each.handler} failed and wait for a retry, the first {since}; the last error: "
                    f"{each.error}. Mend the cause: they run again, and die when their retries are spent."
                )


def _dead(facts: Facts) -> Iterator[str]:
    for each in facts.letters:
        count = f"{each.count:,} deliveries" if each.count > 1 else "1 delivery"
        yield (
            f"{'At least ' if each.more else ''}{count} of {each.handler} {'are' if each.count > 1 else 'is'} dead, "
            f"{when(each.since, facts.now)}; the last: {each.reason}, {each.error}. They lie in {each.topic!r}: mend "
            "the cause, then send them back or leave them."
        )


def _consumers(facts: Facts, queue: str) -> dict[str, Mapping[str, Any]]:
    return {name: state for name, state in (facts.workers or {}).items() if queue in state["queues"]}


def _knowing(facts: Facts, handler: str, queue: str | None) -> bool:
    return any(handler in state["handlers"] for state in _consumers(facts, queue or "").values())


def _known_anywhere(facts: Facts, handler: str) -> bool:
    return any(handler in state["handlers"] for state in (facts.workers or {}).values())


def _named(names: Sequence[str], states: Mapping[str, Mapping[str, Any]]) -> str:
    shown = ", ".join(f"{name} ({states[name]['versions'].get('celery-kafka-bridge') or '?'})" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"
