"""The problems of a deployment: queues without workers, unknown handlers, a group that two applications use."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.formats.text_forms import format_count
from bridge.jobs.group_facts import GroupFacts, HandlerFacts, format_known_since, format_since
from bridge.kafka.consumer_groups import find_consumed_topics
from bridge.kafka.topic_names import DerivedTopics, TopicNames
from bridge.ledger import Ledger
from bridge.ledger.group_members import find_living_sources
from bridge.problems.bridge_problem_rows import GROUP_DIVIDED
from bridge.problems.problem import Problem, make_problem
from bridge.problems.worker_problem_rows import HANDLER_UNKNOWN, WORKERS_DOWN
from bridge.settings import Settings

#: Seconds for which bridges of the same topics with other handlers may be the two sides of a rolling deploy.
DEPLOY_LASTS: Final = 600.0


def find_unknown_handlers(facts: GroupFacts) -> dict[str, Problem]:
    """Return, by name, a problem for each handler that no worker of its queue knows."""
    return {handler.name: sentence for handler in facts.handlers if (sentence := _describe_unknown(facts, handler))}


def find_unconsumed_queues(facts: GroupFacts) -> dict[str, Problem]:
    """Return, by name, a problem for each queue that no living worker consumes."""
    if facts.workers is None:
        return {}
    queues = sorted({handler.queue for handler in facts.handlers})
    return {queue: _describe_unconsumed(facts, queue) for queue in queues if not facts.consumers(queue)}


def find_divided_topics(facts: GroupFacts) -> dict[str, Problem]:
    """Return, by topic, a problem for each topic whose handlers differ between bridges of the group."""
    groups: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, state in (facts.bridges or {}).items():
        for topic, handlers in state.get("routes", {}).items():
            groups.setdefault(topic, {}).setdefault(tuple(sorted(handlers)), []).append(name)
    for topic, found in groups.items():
        if here := tuple(sorted(handler.name for handler in facts.handlers if topic in handler.topics)):
            found.setdefault(here, ["here"])
    return {topic: _describe_divided(facts, topic, found) for topic, found in sorted(groups.items()) if len(found) > 1}


def is_stopped(facts: GroupFacts) -> bool:
    """Return whether no bridge and no worker of this application runs and nothing waits in its queues: a full stop.

    A bridge that ended without a shutdown was not stopped.
    """
    queues = {handler.queue for handler in facts.handlers}
    if facts.bridges is None or facts.workers is None or facts.queues is None:
        return False
    waits = any(facts.queues.get(queue, 0) + facts.retries.get(queue, 0) for queue in queues)
    return not (waits or facts.bridges or facts.lost or any(facts.consumers(queue) for queue in queues))


def find_other_applications(facts: GroupFacts) -> dict[str, Problem]:
    """Return, by group, a problem if living members share no handler with this application, directly or by others.

    A bridge of the same source topics counts as part of a deploy that renames handlers, until both have run for long.
    """
    bridges = facts.bridges or {}
    members = {f"bridge {name}": {*state.get("handlers", ())} for name, state in bridges.items()}
    for name, state in (facts.workers or {}).items():
        if state.get("group") == facts.group:
            members[f"worker {name}"] = {*state["handlers"]}
    others = {name: handlers for name, handlers in members.items() if handlers}
    ours = {handler.name for handler in facts.handlers}
    _join_members(ours, others)
    began = {f"bridge {name}": float(state.get("started", 0.0)) for name, state in bridges.items()}
    here = min((at for name, at in began.items() if name not in others), default=facts.now)
    there = min((at for name, at in began.items() if name in others), default=facts.now)
    if facts.now - max(here, there) < DEPLOY_LASTS:
        sources = {topic for handler in facts.handlers for topic in handler.topics}
        renamed = {f"bridge {name}" for name, state in bridges.items() if sources & {*state.get("routes", ())}}
        for name in renamed & others.keys():
            ours |= others.pop(name)
        _join_members(ours, others)
    # Workers alone are no other application: they may lack a handler, which is a problem of its own.
    if not ours or not any(name.startswith("bridge ") for name in others):
        return {}
    theirs = sorted({handler for handlers in others.values() for handler in handlers})
    since = max((at for name, at in began.items() if name in others and at), default=None)
    return {facts.group: _describe_other_application(facts, sorted(others), theirs, since)}


def _join_members(ours: set[str], others: dict[str, set[str]]) -> None:
    """Move the members that share a handler with `ours` there.

    A deploy may rename handlers, and workers of one application may have some each: a chain is one application.
    """
    while ours and (joined := [name for name, handlers in others.items() if handlers & ours]):
        for name in joined:
            ours |= others.pop(name)


def format_workers(names: Sequence[str], states: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first five workers with their versions."""
    shown = ", ".join(f"{name} ({states[name]['versions'].get('celery-kafka-bridge') or '?'})" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _describe_other_application(
    facts: GroupFacts, names: Sequence[str], handlers: Sequence[str], since: float | None
) -> Problem:
    return make_problem(
        GROUP_DIVIDED,
        "application",
        since=since,
        many=len(names),
        bridge_group=facts.group,
        began=format_known_since(since, facts.now),
        processes=_format_some(names),
        names=_format_some(handlers),
    )


def _format_some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _describe_unconsumed(facts: GroupFacts, queue: str) -> Problem:
    last = facts.seen.get(f"queue {queue}")
    count = (facts.queues or {}).get(queue)
    later = facts.retries.get(queue, 0)
    if count is None:
        waiting = "its messages wait"
    elif not count + later:
        waiting = "it is empty"
    else:
        waiting = f"{_format_messages(count + later, facts.deliveries.get(queue))} wait there"
        waiting += f", {later:,} of them for their retry" if later else ""
    # A wiped Redis has lost its queues too: missing deliveries are a problem of their own.
    missing = _has_unaccounted(facts, queue)
    return make_problem(
        WORKERS_DOWN,
        since=last,
        many=None if count is None else facts.deliveries.get(queue) or count + later,
        of="deliveries" if facts.deliveries.get(queue) else None,
        lost=None if missing else 0,
        queue=queue,
        began=format_since(last, facts.now),
        waiting=waiting,
        safe="" if count == later == 0 or missing else ", none of them is lost",
        start=f"celery -A {facts.app} worker",
    )


def _format_messages(count: int, deliveries: int | None) -> str:
    """Return the number of Celery messages, and of the deliveries in them if that is known and differs."""
    if not deliveries or deliveries == count:
        return format_count(count, "message")
    return f"{format_count(deliveries, 'delivery')} in {format_count(count, 'Celery message')}"


def _has_unaccounted(facts: GroupFacts, queue: str) -> bool:
    """Return whether deliveries of a handler of this queue are unaccounted for."""
    names = {handler.name for handler in facts.handlers if handler.queue == queue}
    return any(each["handler"] in names for s in (facts.bridges or {}).values() for each in s.get("unaccounted", ()))


def _describe_unknown(facts: GroupFacts, handler: HandlerFacts) -> Problem | None:
    consumers = facts.consumers(handler.queue)
    if not consumers or any(handler.name in state["handlers"] for state in consumers.values()):
        return None
    last, count = facts.seen.get(f"handler {handler.name}"), (facts.queues or {}).get(handler.queue, 0)
    own = _count_ready(facts, handler)
    waiting = (
        f"{own:,} of its deliveries wait there"
        if own is not None
        else f"{format_count(count, 'message', 'wait')} in that queue"
    )
    return make_problem(
        HANDLER_UNKNOWN,
        handler=handler.name,
        since=last,
        many=count if own is None else own,
        of=None if own is None else "deliveries",
        began=format_since(last, facts.now),
        workers=format_workers(list(consumers), consumers),
        queue=handler.queue,
        waiting=waiting,
    )


def _count_ready(facts: GroupFacts, handler: HandlerFacts) -> int | None:
    """Return how many deliveries of a handler wait in its queue, as bridges estimate; `None` if unknown."""
    said = (state.get("ready") for state in (facts.bridges or {}).values())
    queue = next((each[handler.queue] for each in said if isinstance(each, Mapping) and handler.queue in each), None)
    return round(queue.get(handler.name, 0)) if isinstance(queue, Mapping) else None


def _describe_divided(facts: GroupFacts, topic: str, found: Mapping[tuple[str, ...], Sequence[str]]) -> Problem:
    since = _divided_since(facts, found.values())
    sets = "; ".join(f"{', '.join(handlers)} ({', '.join(names[:5])})" for handlers, names in sorted(found.items()))
    return make_problem(
        GROUP_DIVIDED,
        "handlers",
        topic=topic,
        since=since,
        many=len({*chain(*found.values())} & {*(facts.bridges or {})}),
        bridge_group=facts.group,
        began=format_known_since(since, facts.now),
        names=sets,
    )


def _divided_since(facts: GroupFacts, sides: Iterable[Sequence[str]]) -> float | None:
    """Return when the second of the running sides started; `None` if there is one side, or that is unknown."""
    bridges = facts.bridges or {}
    began = [[bridges[name].get("started") for name in names if name in bridges] for names in sides]
    firsts = sorted(min(map(float, filter(None, times))) for times in began if times and all(times))
    return firsts[1] if len(firsts) > 1 else None


logger = logging.getLogger(__name__)


def find_foreign_topics(settings: Settings, ledger: Ledger, sources: Collection[str]) -> tuple[str, ...] | None:
    """Return the topics that a member of the group consumes which no bridge or worker of this Redis handles.

    `None`: the group is rebalancing.

    Parameters:
        sources: the topics that this application handles.

    Raises:
        KafkaUnavailable: Kafka did not say who is in the group.
        LedgerUnavailable: Redis did not say who lives.
    """
    consumed = find_consumed_topics(settings)
    if consumed is None:
        return None
    if not consumed or not sources:
        return ()
    known = {*sources, *find_living_sources(ledger)}
    return tuple(
        sorted(
            consumed - known - DerivedTopics(TopicNames.from_settings(settings), known).find_derived(consumed).keys()
        )
    )


def unknown_members(group: str, why: str = "") -> str:
    """Return the sentence that the other members of a group are not known, and why."""
    why = why or "a rebalance is in progress."
    return f"It is unknown whether another application uses the group {group!r}: {why}"


def describe_foreign_member(group: str, topics: Sequence[str]) -> Problem:
    """Return the problem of a group member that consumes these topics and is unknown to this Redis."""
    return make_problem(
        GROUP_DIVIDED,
        "member",
        many=len(topics),
        bridge_group=group,
        topics=f"{format_count(len(topics), 'topic')}, {', '.join(topics[:5])}{', …' if topics[5:] else ''}",
    )


class GroupWatch:
    """The watch for another application in the group; it logs when one joins and when it is gone.

    Parameters:
        find: `find_foreign_topics` of this application.

    Attributes:
        foreign: the topics of the other application, as last known.
    """

    def __init__(self, group: str, find: Callable[[], tuple[str, ...] | None]) -> None:
        self.foreign: tuple[str, ...] = ()
        self._group, self._find = group, find

    def poll(self) -> bool:
        """Search once; return whether the members of the group are known."""
        try:
            found = self._find()
        except (KafkaUnavailable, LedgerUnavailable) as error:
            logger.debug("%s", unknown_members(self._group, str(error)))
            return False
        if found is None:
            return False
        if found and found != self.foreign:
            logger.error("%s", describe_foreign_member(self._group, found))
        elif self.foreign and not found:
            logger.info("No other application uses the group %r any more.", self._group)
        self.foreign = found
        return True
