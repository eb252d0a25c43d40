"""`bridge status --json`: what was found of a group, as programs read it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final

from bridge.commands.asked import Asked
from bridge.commands.halt import shown
from bridge.commands.problems import problems
from bridge.ledger.counts import HOURS, MINUTES, Series, Whose
from bridge.records.policies import summary, values, words
from bridge.records.times import iso
from bridge.topics.extents import Extent
from bridge.upkeep.facts import Down, Facts
from bridge.upkeep.problem import Problem


def as_data(asked: Asked, topics: Iterable[str]) -> dict[str, Any]:
    """As JSON-able data (`status` says what it has).

    Parameters:
        topics: that the group consumes.
    """
    facts = asked.facts
    return {
        "group": facts.group,
        **told(problems(facts)),
        "topics": None if asked.extents is None else _topics(topics, asked.extents),
        "bridges": _with_times(facts.bridges),
        "workers": _with_times(facts.workers),
        "unconfirmed": {
            kind: {
                name: {"last_seen": None if at is None else iso(at)}
                for name, at in facts.unconfirmed.get(kind, {}).items()
            }
            for kind in ("bridges", "workers")
        },
        "queues": _queues(facts),
        "oldest": [
            {"topic": topic, "handler": handler, "seconds": round(seconds, 1)}
            for (topic, handler), seconds in sorted(facts.oldest.items())
        ],
        "parked": _parked(facts) if asked.knows_parked else None,
        "halted": {topic: shown(halt) for topic, halt in facts.halts.items()},
        "policies": {name: f"{summary(data)}: {words(values(data))}" for name, data in asked.policies.items()},
        "breakers": {each.dependency: _breaker(each) for each in facts.breakers},
        "counts": None if facts.counts is None else [_counts(*each, facts.now) for each in facts.counts.items()],
        "unanswered": asked.silent,
        "unknown": asked.unknown,
    }


def told(found: Sequence[Problem]) -> dict[str, Any]:
    """What needs a person: the sentences, and each with its values."""
    return {"problems": [*map(str, found)], "problem_values": [each.data() for each in found]}


def with_more(status: Mapping[str, Any], found: Sequence[Problem]) -> dict[str, Any]:
    """The status, with what needs a person besides; what both say is said once.

    Deliveries that are dead, and groups that grow of their letters, are one thing to mend: of a handler all of whose
    dead deliveries can be letters of such groups, the groups are said.
    """
    dead = _many(status["problem_values"], "dead")
    grow = _many([each.data() for each in found], "grows")
    said = {handler for handler, many in dead.items() if grow.get(handler, 0) >= many}
    kept = [each["kind"] != "dead" or each["handler"] not in said for each in status["problem_values"]]
    more = told(found)
    return {**status, **{name: [*compress(status[name], kept), *values] for name, values in more.items()}}


def _many(problems: Iterable[Mapping[str, Any]], kind: str) -> Counter[str]:
    """How many deliveries, or letters, problems of a kind are about, by handler."""
    found: Counter[str] = Counter()
    for each in problems:
        if each["kind"] == kind and each["handler"]:
            found[each["handler"]] += each["many"] or 0
    return found


def _queues(facts: Facts) -> dict[str, dict[str, Any]] | None:
    if facts.queues is None:
        return None
    workers = None if facts.workers is None else facts.workers.values()
    return {
        queue: {
            "messages": length,
            "workers": None if workers is None else sum(queue in state["queues"] for state in workers),
            "backlog": _backlog(facts, queue),
        }
        for queue, length in facts.queues.items()
    }


def _breaker(down: Down) -> dict[str, Any]:
    return {
        "state": down.state,
        "since": iso(down.since),
        "why": down.why,
        "handlers": list(down.handlers),
        "waiting": down.aside.messages,
        "waiting_deliveries": down.aside.deliveries,
        "tried": iso(down.tried) if down.tried else None,
        "next_try": None if down.state == "ramping" else iso(down.next),
        "silent_tries": down.silent,
    }


def _counts(whose: Whose, series: Series, now: float) -> dict[str, Any]:
    """What a handler did of a topic: by the minute and by the hour, the first of which begins at `from`."""
    topic, handler = whose
    minute, hour = now // 60 - MINUTES + 1, now // 3_600 - HOURS + 1
    return {
        "topic": topic,
        "handler": handler,
        "minutes": {"from": iso(minute * 60), **series.minutes},
        "hours": {"from": iso(hour * 3_600), **series.hours},
    }


def _backlog(facts: Facts, queue: str) -> Any:
    """What is to be done, as a bridge says it: each says it of the whole group. `None` where none runs."""
    said = (state.get("backlog", {}).get(queue) for state in (facts.bridges or {}).values())
    return next((each for each in said if each), None)


def _parked(facts: Facts) -> list[dict[str, Any]]:
    """What waits in Kafka for its time, or to be replayed, and what of it is due next, or has been for how long."""
    found = []
    for tier in facts.tiers:
        if tier.kind in ("retry", "replay") and (tier.records or tier.use == "needed"):
            first = min(tier.first_due.values(), default=None)
            found.append(
                {
                    "source": tier.source,
                    "topic": tier.topic,
                    "delay": tier.delay,
                    "use": tier.use,
                    "records": tier.records,
                    "next_due": None if first is None else iso(first),
                    "late_seconds": 0.0 if first is None else round(max(0.0, facts.now - first), 1),
                }
            )
    return found


def _topics(names: Iterable[str], found: Iterable[Extent]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {topic: {} for topic in names}
    for extent in found:
        topics[extent.topic][str(extent.partition)] = {
            "committed": extent.committed,
            "end": extent.end,
            "lag": extent.lag,
        }
    return topics


#: Where what is announced holds times.
_TIMES = ("since", "started", "paused_since", "obstacles_since", "unaccounted", "behind", "open_transactions")
_NO_TIMES: Final = ("partition", "count", "offset")


def _with_times(members: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """What members announce, its times as people and programs read them."""
    if members is None:
        return None
    return {name: {key: _timed(value, key in _TIMES) for key, value in s.items()} for name, s in members.items()}


def _timed(value: Any, times: bool) -> Any:
    match value:
        case dict():
            return {key: _timed(each, times and key not in _NO_TIMES) for key, each in value.items()}
        case list():
            return [_timed(each, times) for each in value]
        case float() | int() if times:
            return iso(value)
    return value
