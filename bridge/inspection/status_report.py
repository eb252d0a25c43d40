"""The report of the status: every problem, the worst first, and all facts as JSON-able data (pure)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final

from bridge.formats.group_decision import format_options, read_option_values, summarize_policy_changes
from bridge.formats.text_forms import format_time
from bridge.inspection import consumption_problems, delivery_problems, redis_problems, topic_problems
from bridge.inspection.status_sources import StatusSources
from bridge.jobs import handler_health
from bridge.jobs.deployment_problems import (
    describe_foreign_member,
    find_divided_topics,
    find_other_applications,
    find_unconsumed_queues,
    find_unknown_handlers,
)
from bridge.jobs.group_facts import DependencyDown, GroupFacts, HandlerHalt, format_known_since
from bridge.jobs.open_transactions import find_held_back_topics
from bridge.kafka.partition_offsets import Extent, make_unreadable_data
from bridge.ledger.attempt_statistics import TopicHandler
from bridge.ledger.delivery_counts import HOURS, MINUTES, CountSeries
from bridge.ledger.limit_state import LimitStatus
from bridge.operator_actions.handler_halt import make_handler_halt_view
from bridge.operator_actions.topic_halt import make_halt_view
from bridge.problems.bridge_problem_rows import SERVER_UNAVAILABLE
from bridge.problems.problem import Problem, make_problem


def make_silent_problem(sentence: str, facts: GroupFacts | None = None) -> Problem:
    """Return the problem of a server that does not answer.

    Parameters:
        facts: with the bridges, which say since when Kafka does not answer; `None`: no server answers.
    """
    what = find_server(sentence)
    since = _find_kafka_down_since(facts) if facts is not None and what.startswith("Kafka") else None
    if facts is not None and since is not None:
        sentence = f"{what}{format_known_since(since, facts.now)}{sentence.removeprefix(what)}"
    return make_problem(SERVER_UNAVAILABLE, since=since, lost=None, fault=sentence, short=what)


def find_server(sentence: str) -> str:
    """Return the beginning of a sentence on a server that does not answer: which one."""
    return sentence.partition(":")[0].partition(". ")[0]


def _find_kafka_down_since(facts: GroupFacts) -> float | None:
    """Return since when Kafka does not answer the bridges that run; `None` if none of them says so."""
    times = [
        at
        for state in (facts.bridges or {}).values()
        for text, at in zip(state.get("obstacles", ()), state.get("obstacles_since", ()), strict=False)
        if text.startswith("Kafka") and at is not None
    ]
    return min(times, default=None)


def list_problems(facts: GroupFacts) -> list[Problem]:
    """Return every problem; those that stop most come first."""
    return [
        *(make_silent_problem(sentence, facts) for sentence in facts.silent),
        *redis_problems.find_memory_problems(facts),
        *consumption_problems.find_halted_topics(facts),
        *consumption_problems.find_handler_halts(facts),
        *facts.stale,
        *consumption_problems.find_open_breakers(facts),
        *consumption_problems.find_unnamed_dependencies(facts),
        *consumption_problems.find_missing_bridges(facts),
        *handler_health.find_lost_bridges(facts),
        *find_other_applications(facts).values(),
        *([describe_foreign_member(facts.group, facts.foreign)] if facts.foreign else []),
        *find_divided_topics(facts).values(),
        *consumption_problems.find_obstacles(facts),
        *find_unconsumed_queues(facts).values(),
        *find_unknown_handlers(facts).values(),
        *delivery_problems.find_partly_known_handlers(facts),
        *handler_health.find_hung_handlers(facts),
        *handler_health.find_slow_workers(facts),
        *handler_health.find_skewed_clocks(facts),
        *delivery_problems.find_unaccounted_deliveries(facts),
        *delivery_problems.find_log_changes(facts),
        *delivery_problems.find_old_deliveries(facts),
        *topic_problems.find_unmade_topics(facts),
        *topic_problems.find_unfit_topics(facts),
        *topic_problems.find_unreadable_partitions(facts.unreadable),
        *topic_problems.find_unsynced_replicas({tier.topic: tier.replicas for tier in facts.tiers}),
        *topic_problems.find_overdue_tiers(facts),
        *topic_problems.find_drained_tiers(facts),
        *consumption_problems.find_dying_topics(facts),
        *consumption_problems.find_paused_partitions(facts),
        *find_held_back_topics(facts),
        *consumption_problems.find_consumer_lag(facts),
        *consumption_problems.find_hot_keys(facts),
        *consumption_problems.find_dead_holds(facts),
        *handler_health.find_quiet_topics(facts),
        *delivery_problems.find_failing_deliveries(facts),
        *handler_health.find_dying_processes(facts),
        *delivery_problems.find_dead_deliveries(facts),
    ]


def make_status_data(sources: StatusSources, topics: Iterable[str]) -> dict[str, Any]:
    """Return the status as JSON-able data.

    Parameters:
        topics: the topics that the group consumes.
    """
    facts = sources.facts
    return {
        "group": facts.group,
        **make_problem_data(list_problems(facts)),
        "topics": None if sources.extents is None else _topics(topics, sources.extents),
        "unreadable": make_unreadable_data(facts.unreadable),
        "bridges": _with_times(facts.bridges),
        "workers": _with_times(facts.workers),
        "unconfirmed": {
            kind: {
                name: {"last_seen": None if at is None else format_time(at)}
                for name, at in facts.unconfirmed.get(kind, {}).items()
            }
            for kind in ("bridges", "workers")
        },
        "queues": _queues(facts),
        "oldest": [
            {"topic": topic, "handler": handler, "seconds": round(seconds, 1)}
            for (topic, handler), seconds in sorted(facts.oldest.items())
        ],
        "parked": _parked(facts) if sources.knows_parked else None,
        "halted": {topic: make_halt_view(halt) for topic, halt in facts.halts.items()},
        "halted_handlers": [_handler_halt(each) for each in facts.handler_halts],
        "policies": {
            name: f"{summarize_policy_changes(data)}: {format_options(read_option_values(data))}"
            for name, data in sources.policies.items()
        },
        "breakers": {each.dependency: _breaker(each) for each in facts.breakers},
        "limits": {name: _limit(sources, name, limit) for name, limit in sources.limits.items()},
        "counts": None if facts.counts is None else [_counts(*each, facts.now) for each in facts.counts.items()],
        "unanswered": sources.silent,
        "unknown": sources.unknown,
    }


def make_problem_data(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the problems as sentences, and as values."""
    return {"problems": [*map(str, problems)], "problem_values": [problem.data() for problem in problems]}


def add_problems(status: Mapping[str, Any], more_problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the status with more problems, without those that they repeat.

    Dead deliveries and the growing groups of their letters have one cause: if all dead deliveries of a handler can be
    letters of growing groups, only the groups are listed.
    """
    dead = _count_by_handler(status["problem_values"], "dead")
    grow = _count_by_handler([problem.data() for problem in more_problems], "grows")
    told = {handler for handler, many in dead.items() if grow.get(handler, 0) >= many}
    kept = [problem["kind"] != "dead" or problem["handler"] not in told for problem in status["problem_values"]]
    more = make_problem_data(more_problems)
    return {**status, **{name: [*compress(status[name], kept), *values] for name, values in more.items()}}


def _count_by_handler(problems: Iterable[Mapping[str, Any]], kind: str) -> Counter[str]:
    """Return by handler the number of deliveries or letters in problems of a kind."""
    counts: Counter[str] = Counter()
    for problem in problems:
        # The last of the growing groups counts groups.
        if problem["kind"] == kind and problem["handler"] and problem["of"] != "groups":
            counts[problem["handler"]] += problem["many"] or 0
    return counts


def _queues(facts: GroupFacts) -> dict[str, dict[str, Any]] | None:
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


def _handler_halt(halted: HandlerHalt) -> dict[str, Any]:
    return {
        **make_handler_halt_view(halted.scope, halted.halt),
        "waiting": halted.aside.messages,
        "waiting_deliveries": halted.aside.deliveries,
    }


def _breaker(down: DependencyDown) -> dict[str, Any]:
    return {
        "state": down.state,
        "since": format_time(down.since),
        "why": down.why,
        "handlers": list(down.handlers),
        "waiting": down.aside.messages,
        "waiting_deliveries": down.aside.deliveries,
        "tried": format_time(down.tried) if down.tried else None,
        "next_try": None if down.state == "ramping" else format_time(down.next),
        "silent_tries": down.silent,
    }


def _limit(sources: StatusSources, name: str, limit: LimitStatus) -> dict[str, Any]:
    return {
        **sources.terms.get(name, {}),
        "running": limit.running,
        "waiting": limit.waiting,
        "wait_seconds": limit.wait,
        "lanes": limit.lanes,
        "started": limit.started,
        "waited": limit.waited,
    }


def _counts(whose: TopicHandler, series: CountSeries, now: float) -> dict[str, Any]:
    """Return the counts of a handler and topic by minute and by hour, beginning at `from`."""
    topic, handler = whose
    minute, hour = now // 60 - MINUTES + 1, now // 3_600 - HOURS + 1
    return {
        "topic": topic,
        "handler": handler,
        "minutes": {"from": format_time(minute * 60), **series.minutes},
        "hours": {"from": format_time(hour * 3_600), **series.hours},
    }


def _backlog(facts: GroupFacts, queue: str) -> Any:
    """Return the backlog of a queue as a bridge announces it for the whole group; `None` if no bridge runs."""
    said = (state.get("backlog", {}).get(queue) for state in (facts.bridges or {}).values())
    return next((each for each in said if each), None)


def _parked(facts: GroupFacts) -> list[dict[str, Any]]:
    """Return the records that wait in retry and replay topics, and when the next is or was due."""
    rows = []
    for tier in facts.tiers:
        if tier.kind in ("retry", "replay") and (tier.records or tier.use == "needed"):
            first = min(tier.first_due.values(), default=None)
            rows.append(
                {
                    "source": tier.source,
                    "topic": tier.topic,
                    "delay": tier.delay,
                    "use": tier.use,
                    "records": tier.records,
                    "next_due": None if first is None else format_time(first),
                    "late_seconds": 0.0 if first is None else round(max(0.0, facts.now - first), 1),
                }
            )
    return rows


def _topics(names: Iterable[str], extents: Iterable[Extent]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {topic: {} for topic in names}
    for extent in extents:
        topics[extent.topic][str(extent.partition)] = {
            "committed": extent.committed,
            "end": extent.end,
            "lag": extent.lag,
        }
    return topics


#: The announced fields that hold times.
_TIMES = (
    *("since", "started", "paused_since", "obstacles_since", "unmade_since"),
    *("unaccounted", "behind", "open_transactions"),
)
_NO_TIMES: Final = ("partition", "count", "offset")


def _with_times(members: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Return the announcements of members, with times as ISO 8601."""
    if members is None:
        return None
    return {name: {key: _timed(value, key in _TIMES) for key, value in s.items()} for name, s in members.items()}


def _timed(value: Any, times: bool) -> Any:
    match value:
        case dict():
            return {key: _timed(part, times and key not in _NO_TIMES) for key, part in value.items()}
        case list():
            return [_timed(part, times) for part in value]
        case float() | int() if times:
            return format_time(value)
    return value
