"""What nobody takes care of: queues without workers, handlers that none knows, topics that a group divides (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from bridge.upkeep.facts import Facts, HandlerFacts, since_if_known, when
from bridge.upkeep.problem import Problem

#: Seconds for which bridges of the same topics with other handlers may be the two sides of a rolling deploy.
DEPLOY_LASTS: Final = 600.0


def unknown_handlers(facts: Facts) -> dict[str, Problem]:
    """Handlers whose queue is consumed, by workers of which none knows them: a sentence for each name."""
    return {handler.name: sentence for handler in facts.handlers if (sentence := _unknown_to(facts, handler))}


def unconsumed_queues(facts: Facts) -> dict[str, Problem]:
    """Queues that no living worker consumes: a sentence for each name."""
    if facts.workers is None:
        return {}
    queues = sorted({handler.queue for handler in facts.handlers})
    return {queue: _unconsumed(facts, queue) for queue in queues if not facts.consumers(queue)}


def divided_topics(facts: Facts) -> dict[str, Problem]:
    """Topics that one group hands to different handlers, by the bridge that has the partition: a sentence for each."""
    groups: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, state in (facts.bridges or {}).items():
        for topic, handlers in state.get("routes", {}).items():
            groups.setdefault(topic, {}).setdefault(tuple(sorted(handlers)), []).append(name)
    for topic, found in groups.items():
        if here := tuple(sorted(handler.name for handler in facts.handlers if topic in handler.topics)):
            found.setdefault(here, ["here"])
    return {topic: _divided(facts, topic, found) for topic, found in sorted(groups.items()) if len(found) > 1}


def is_stopped(facts: Facts) -> bool:
    """Return whether no bridge and no worker of this application runs and nothing waits in its queues: a full stop.

    A bridge that fell silent without a shutdown was not stopped.
    """
    queues = {handler.queue for handler in facts.handlers}
    if facts.bridges is None or facts.workers is None or facts.queues is None:
        return False
    waits = any(facts.queues.get(queue, 0) + facts.retries.get(queue, 0) for queue in queues)
    return not (waits or facts.bridges or facts.lost or any(facts.consumers(queue) for queue in queues))


def other_applications(facts: Facts) -> dict[str, Problem]:
    """Living members of the group that share no handler with this application, directly or by others: a sentence.

    A bridge of the same source topics is one of a deploy that renames handlers, until both have run for long.
    """
    bridges = facts.bridges or {}
    members = {f"bridge {name}": {*state.get("handlers", ())} for name, state in bridges.items()}
    for name, state in (facts.workers or {}).items():
        if state.get("group") == facts.group:
            members[f"worker {name}"] = {*state["handlers"]}
    others = {name: handlers for name, handlers in members.items() if handlers}
    ours = {handler.name for handler in facts.handlers}
    _join(ours, others)
    began = {f"bridge {name}": float(state.get("started", 0.0)) for name, state in bridges.items()}
    here = min((at for name, at in began.items() if name not in others), default=facts.now)
    there = min((at for name, at in began.items() if name in others), default=facts.now)
    if facts.now - max(here, there) < DEPLOY_LASTS:
        sources = {topic for handler in facts.handlers for topic in handler.topics}
        renamed = {f"bridge {name}" for name, state in bridges.items() if sources & {*state.get("routes", ())}}
        for name in renamed & others.keys():
            ours |= others.pop(name)
        _join(ours, others)
    # Workers alone are no application: they may lack a handler, which is said of it.
    if not ours or not any(name.startswith("bridge ") for name in others):
        return {}
    theirs = sorted({handler for handlers in others.values() for handler in handlers})
    since = max((at for name, at in began.items() if name in others and at), default=None)
    return {facts.group: _other_application(facts, sorted(others), theirs, since)}


def _join(ours: set[str], others: dict[str, set[str]]) -> None:
    """Move the members that share a handler with `ours` there.

    A deploy may rename handlers, and workers of one application may have some each: a chain is one application.
    """
    while ours and (joined := [name for name, handlers in others.items() if handlers & ours]):
        for name in joined:
            ours |= others.pop(name)


def named(names: Sequence[str], states: Mapping[str, Mapping[str, Any]]) -> str:
    """Workers with their versions, the first five."""
    shown = ", ".join(f"{name} ({states[name]['versions'].get('celery-kafka-bridge') or '?'})" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _other_application(facts: Facts, names: Sequence[str], handlers: Sequence[str], since: float | None) -> Problem:
    return Problem(
        f"Another application uses the group {facts.group!r}{since_if_known(since, facts.now)}: "
        f"{_some(names)} with {_some(handlers)}, and no handler of this one. Each takes the other's tasks for "
        "those of unknown handlers, and its retry topics for left over. "
        "Give each application its own BRIDGE_GROUP, and delete no topic. If that is an older version of this one, "
        "stop it.",
        "divided",
        f"Another application uses the group {facts.group!r}",
        since=since,
        many=len(names),
        of="processes",
        do="give each application its own BRIDGE_GROUP",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _unconsumed(facts: Facts, queue: str) -> Problem:
    last = facts.seen.get(f"queue {queue}")
    since = when(last, facts.now)
    count = (facts.queues or {}).get(queue)
    later = facts.retries.get(queue, 0)
    if count is None:
        waiting = "all waits there"
    elif not count + later:
        waiting = "nothing waits there"
    else:
        waiting = f"{_messages(count + later, facts.deliveries.get(queue))} wait there"
        waiting += f", {later:,} of them for their retry" if later else ""
    # A ledger that was wiped has lost its queues with it: what is missing there is said beside this.
    missing = _missing_of(facts, queue)
    safe = "" if count == later == 0 or missing else ", none of them is lost"
    start = f"celery -A {facts.app} worker"
    return Problem(
        f"No worker consumes queue {queue!r}, {since}: {waiting}{safe}. Start one: {start}, or with -Q {queue}.",
        "no worker",
        f"No worker consumes queue {queue!r}",
        since=last,
        many=None if count is None else facts.deliveries.get(queue) or count + later,
        of="deliveries" if facts.deliveries.get(queue) else "messages",
        lost=None if missing else 0,
        do=f"start `{start}`",
    )


def _messages(count: int, deliveries: int | None) -> str:
    """So many Celery messages, and what they carry where that is known and another number."""
    if not deliveries or deliveries == count:
        return f"{count:,} messages"
    return f"{deliveries:,} deliveries in {count:,} Celery message{'' if count == 1 else 's'}"


def _missing_of(facts: Facts, queue: str) -> bool:
    """Whether something of a handler of this queue is unaccounted for."""
    names = {handler.name for handler in facts.handlers if handler.queue == queue}
    return any(each["handler"] in names for s in (facts.bridges or {}).values() for each in s.get("unaccounted", ()))


def _unknown_to(facts: Facts, handler: HandlerFacts) -> Problem | None:
    consumers = facts.consumers(handler.queue)
    if not consumers or any(handler.name in state["handlers"] for state in consumers.values()):
        return None
    last, count = facts.seen.get(f"handler {handler.name}"), (facts.queues or {}).get(handler.queue, 0)
    own = _ready(facts, handler)
    waiting = f"{own:,} of its deliveries wait there" if own is not None else f"{count:,} messages wait in that queue"
    return Problem(
        f"No worker knows handler {handler.name}, {when(last, facts.now)}: {named(list(consumers), consumers)} consume "
        f"its queue {handler.queue!r}; {waiting}. Deploy it to the workers, or see their "
        "HANDLERS and `imports`.",
        "unknown handler",
        f"No worker knows handler {handler.name}",
        handler=handler.name,
        since=last,
        many=count if own is None else own,
        of="messages" if own is None else "deliveries",
        do="deploy it to the workers",
    )


def _ready(facts: Facts, handler: HandlerFacts) -> int | None:
    """How many deliveries of a handler wait in its queue, as bridges reckon it; `None`: none has said."""
    said = (state.get("ready") for state in (facts.bridges or {}).values())
    queue = next((each[handler.queue] for each in said if isinstance(each, Mapping) and handler.queue in each), None)
    return round(queue.get(handler.name, 0)) if isinstance(queue, Mapping) else None


def _divided(facts: Facts, topic: str, found: Mapping[tuple[str, ...], Sequence[str]]) -> Problem:
    since = _divided_since(facts, found.values())
    sets = "; ".join(f"{', '.join(handlers)} ({', '.join(names[:5])})" for handlers, names in sorted(found.items()))
    return Problem(
        f"Topic {topic!r} has different handlers in one group, {facts.group!r}{since_if_known(since, facts.now)}: "
        f"{sets}. Each gets only the partitions of its "
        "own bridges. Is one another application? Give it its own BRIDGE_GROUP; else start all bridges of the group "
        "with the same handlers.",
        "divided",
        f"Topic {topic!r} has different handlers in one group",
        topic=topic,
        since=since,
        many=len({*chain(*found.values())} & {*(facts.bridges or {})}),
        of="bridges",
        do="start all bridges with the same handlers",
    )


def _divided_since(facts: Facts, sides: Iterable[Sequence[str]]) -> float | None:
    """When the second of the sides that run began; `None`: there is one, or its bridges do not say when they began."""
    bridges = facts.bridges or {}
    began = [[bridges[name].get("started") for name in names if name in bridges] for names in sides]
    firsts = sorted(min(map(float, filter(None, times))) for times in began if times and all(times))
    return firsts[1] if len(firsts) > 1 else None
