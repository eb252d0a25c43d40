"""The health of handlers: those that fail, hang, die or are too slow, by counts of all attempts (pure).

Running bridges (`bridge_problems`) and `bridge status` find these problems.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from bridge.formats.text_forms import format_count, inflect_verb
from bridge.jobs.group_facts import GroupFacts, HandlerFacts, format_since, format_span, format_utc
from bridge.ledger.attempt_statistics import LOST_TOGETHER, OutcomeSummary
from bridge.problems.bridge_problem_rows import BRIDGE_LOST
from bridge.problems.delivery_problem_rows import PROCESSES_LOST
from bridge.problems.problem import Problem, make_problem
from bridge.problems.topic_problem_rows import TRAFFIC_STOPPED
from bridge.problems.worker_problem_rows import CLOCK_SKEW, HANDLERS_HANG, WORKERS_TOO_SLOW

#: Consecutive failures from which on every attempt of a handler counts as failing.
ALL_FAIL: Final = 10
#: The share of failed attempts, and their number, that need a person although others succeed.
SHARE: Final = 0.05
SOME_FAIL: Final = 20
#: Seconds after its last failure at which a handler no longer counts as failing, if no delivery waits for a retry.
FAILS_FOR: Final = 60.0
#: Minutes of counts for the share: the current one and those before it.
SHARE_MINUTES: Final = 3
#: Seconds that a delivery runs before it may hang, and its multiple of the handler's mean.
HANGS: Final = 20.0
TIMES_AS_LONG: Final = 10.0
#: Seconds of work for each process from which on a growing backlog needs a person.
BEHIND: Final = 60.0
#: Processes that die within ten minutes, from which on this needs a person.
PROCESSES: Final = 3
#: Minutes with records of the last hour, and records a minute, of a topic on which silence is strange.
BUSY_MINUTES: Final = 50
BUSY_RATE: Final = 10
#: Bridges that die within ten minutes, from which on this needs a person; and seconds before a loss was seen in which
#: a bridge that starts counts as its successor.
DIE_AGAIN: Final = 3
TAKES_ITS_PLACE: Final = 30.0
#: Seconds by which a clock may differ.
SKEW: Final = 5.0


class FailingHandler(NamedTuple):
    """The failures of a handler.

    Attributes:
        all: whether every attempt fails.
        failed, of: how many attempts failed, of how many.
    """

    all: bool
    failed: int
    of: int
    since: float
    error: str


def find_failing_handlers(facts: GroupFacts) -> dict[str, FailingHandler]:
    """Return the handlers whose attempts fail now, all of them or one in twenty."""
    return {each.name: found for each in facts.handlers if (found := _find_failure(facts, each)) is not None}


def _find_failure(facts: GroupFacts, handler: HandlerFacts) -> FailingHandler | None:
    if handler.name in facts.waiting_for_needs or not _is_known(facts, handler):
        return None
    for topic in handler.topics:
        outcomes = facts.outcomes.get((topic, handler.name))
        if outcomes is None or not _is_failing_now(facts, handler, topic, outcomes):
            continue
        if outcomes.failed >= ALL_FAIL and outcomes.failing_since > outcomes.done_at:
            return FailingHandler(True, outcomes.failed, outcomes.failed, outcomes.failing_since, outcomes.error)
        if facts.now - outcomes.failed_at < FAILS_FOR / 2 and (found := _share(facts, topic, handler.name)):
            return found._replace(error=outcomes.error)
    return None


def _is_known(facts: GroupFacts, handler: HandlerFacts) -> bool:
    """Return whether a worker knows the handler, as far as known: else its failures are past."""
    if facts.workers is None:
        return True
    return any(handler.name in state["handlers"] for state in facts.consumers(handler.queue).values())


def _is_failing_now(facts: GroupFacts, handler: HandlerFacts, topic: str, outcomes: OutcomeSummary) -> bool:
    if not outcomes.failed_at:
        return False
    waits = any(each.handler == handler.name for each in facts.failing) or facts.retries.get(handler.queue, 0)
    parked = facts.parked(topic)
    return facts.now - outcomes.failed_at < FAILS_FOR or bool(waits) or bool(parked)


def _share(facts: GroupFacts, topic: str, handler: str) -> FailingHandler | None:
    """Return the failed attempts of the last minutes, if their share is too large now and before."""
    series = (facts.counts or {}).get((topic, handler))
    if series is None:
        return None
    pairs = list(zip(series.minutes["failed"], series.minutes["handled"], strict=True))

    def too_many(failed: int, good: int) -> bool:
        return failed > 0 and failed >= SHARE * (failed + good)

    recent = pairs[-SHARE_MINUTES:]
    failed, good = sum(each for each, _ in recent), sum(each for _, each in recent)
    # A failure that began in this minute may pass by itself.
    lasts = facts.now % 60 >= 40 or too_many(*pairs[-2])
    if failed < SOME_FAIL or not too_many(failed, good) or not too_many(*pairs[-1]) or not lasts:
        return None
    minutes = 1
    while minutes < len(pairs) and too_many(*pairs[-1 - minutes]):
        minutes += 1
    since = (facts.now // 60 - minutes + 1) * 60
    return FailingHandler(False, failed, failed + good, since, "")


def find_hung_handlers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield handlers whose deliveries run far longer than usual while none of them ends."""
    for handler in facts.handlers:
        running = [
            (name, state, each)
            for name, state in facts.consumers(handler.queue).items()
            for each in state.get("running", ())
            if each["handler"] == handler.name
        ]
        mean = facts.costs.get(handler.name) or 0.0
        limit = max(HANGS, TIMES_AS_LONG * mean)
        late = sorted(
            (
                (max(0.0, facts.now - each["seconds"]), name, each)
                for name, _, each in running
                if each["seconds"] > limit
            ),
            key=lambda found: found[0],
        )
        if not late:
            continue
        processes = sum(state.get("processes", 1) for state in facts.consumers(handler.queue).values())
        ended = max((_ended_at(facts, topic, handler.name) for topic in handler.topics), default=0.0)
        # While others of it end, or processes are free, a long run is no incident before it is very long.
        if (len(late) < processes or ended > late[-1][0]) and facts.now - late[0][0] < 3 * limit:
            continue
        since, worker, first = late[0]
        ending = (
            f"none of its deliveries has ended since {format_utc(ended)}"
            if ended
            else "none of its deliveries has ended"
        )
        yield make_problem(
            HANDLERS_HANG,
            topic=handler.topics[0] if len(handler.topics) == 1 else None,
            handler=handler.name,
            since=since,
            many=len(late),
            began=format_since(since, facts.now),
            processes=f"{len(late)} of {format_count(processes, 'process')} of queue {handler.queue!r} "
            f"{inflect_verb(len(late), 'run')}",
            limit=format_span(limit),
            oldest=f"{first['record']} in process {first['pid']} of {worker}",
            ended=ending,
            pid=first["pid"],
        )


def _ended_at(facts: GroupFacts, topic: str, handler: str) -> float:
    outcomes = facts.outcomes.get((topic, handler), OutcomeSummary())
    return max(outcomes.done_at, outcomes.failed_at)


def find_slow_workers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield queues whose backlog is over a minute of work for their workers, and grows."""
    said: Mapping[str, Any] = next(
        (state["backlog_growth"] for state in (facts.bridges or {}).values() if state.get("backlog_growth")), {}
    )
    for queue, growth in sorted(said.items()):
        processes = sum(state.get("processes", 1) for state in facts.consumers(queue).values())
        if not processes or growth["rate"] <= 0:
            continue
        behind, more = growth["seconds"] / processes, growth["rate"] / processes
        if behind < BEHIND:
            continue
        yield make_problem(
            WORKERS_TOO_SLOW,
            since=growth["since"],
            many=round(growth["deliveries"]),
            queue=queue,
            began=format_since(growth["since"], facts.now),
            deliveries=format_count(growth["deliveries"], "delivery", "are"),
            work=format_span(behind),
            processes=format_count(processes, "process"),
            growth=format_span(max(1.0, more * 60)),
            needed=format_count(max(1, ceil(growth["rate"])), "more process"),
        )


def find_dying_processes(facts: GroupFacts) -> Iterator[Problem]:
    """Yield handlers with whose deliveries processes die."""
    for handler in facts.handlers:
        for topic in handler.topics:
            found = facts.outcomes.get((topic, handler.name), OutcomeSummary())
            if found.lost < PROCESSES or facts.now - found.lost_at > LOST_TOGETHER:
                continue
            yield make_problem(
                PROCESSES_LOST,
                topic=topic,
                handler=handler.name,
                since=found.lost_since,
                many=found.lost,
                began=format_since(found.lost_since, facts.now),
                lost_processes=f"{found.lost:,}",
                last=format_utc(found.lost_at),
            )


def find_quiet_topics(facts: GroupFacts) -> Iterator[Problem]:
    """Yield topics without new records, after an hour in which records came nearly every minute."""
    if not facts.bridges or facts.lag is None:
        return
    for topic in sorted(
        {topic for each in facts.handlers for topic in each.topics} - facts.halts.keys() - facts.held_back
    ):
        if facts.lag.get(topic, 0) or facts.parked(topic):
            continue
        found = [series.minutes for (of, _), series in (facts.counts or {}).items() if of == topic]
        ended = [
            sum(each)
            for each in zip(*(minutes[what] for minutes in found for what in ("handled", "failed")), strict=True)
        ]
        if not ended or any(ended[-2:]):
            continue
        silent = next((n for n, count in enumerate(reversed(ended)) if count), len(ended))
        before = ended[: len(ended) - silent]
        busy = sorted(before)[len(before) // 2] if before else 0
        if silent > 10 or sum(1 for count in before if count) < BUSY_MINUTES - silent or busy < BUSY_RATE:
            continue
        since = max((_ended_at(facts, topic, each.name) for each in facts.handlers if topic in each.topics), default=0)
        yield make_problem(
            TRAFFIC_STOPPED,
            topic=topic,
            since=since or None,
            many=0,
            began=format_since(since or None, facts.now),
            usual=format_count(busy, "record"),
        )


def find_lost_bridges(facts: GroupFacts) -> Iterator[Problem]:
    """Yield bridges that ended without a shutdown and a successor, and bridges that die again and again."""
    if not facts.bridges or not facts.lost:
        return
    started = sorted(float(state.get("started", 0.0)) for state in facts.bridges.values())
    gone = sorted((facts.now - ago, name) for name, ago in facts.lost.items() if name not in facts.bridges)
    recent = [each for each in gone if facts.now - each[0] <= LOST_TOGETHER]
    # A bridge that started since then, or shortly before the loss was seen, has taken its place.
    successors = [at for at in started if gone and at >= gone[0][0] - TAKES_ITS_PLACE]
    missing = len(gone) - len(successors)
    if missing <= 0 and len(recent) < DIE_AGAIN:
        return
    many, since = (missing, gone[-missing][0]) if missing > 0 else (len(recent), recent[0][0])
    losses = (
        f"{many} bridge{'s' if many > 1 else ''} ended without a shutdown"
        if missing > 0
        else f"Bridges die again and again, {many} in the last {format_span(LOST_TOGETHER)}"
    )
    yield make_problem(
        BRIDGE_LOST,
        since=since,
        many=many,
        losses=losses,
        began=format_since(since, facts.now),
        last=gone[-1][1],
        running=len(facts.bridges),
    )


def find_skewed_clocks(facts: GroupFacts) -> Iterator[Problem]:
    """Yield hosts whose clocks differ from that of Redis."""
    hosts: dict[str, tuple[float, list[str]]] = {}
    for name, state in ({**(facts.bridges or {}), **(facts.workers or {})}).items():
        skew = state.get("clock_skew")
        if isinstance(skew, int | float) and abs(skew) > SKEW:
            host = str(state.get("host") or name.rpartition(":")[0] or name)
            _, names = hosts.get(host, (skew, []))
            hosts[host] = (skew, [*names, name])
    for host, (skew, names) in sorted(hosts.items()):
        began = min((_started(facts, name) for name in names), default=None)
        yield make_problem(
            CLOCK_SKEW,
            since=began,
            many=len(names),
            host=host,
            skew=f"{format_span(abs(skew))} {'ahead of' if skew > 0 else 'behind'}",
            began=format_since(began, facts.now),
            processes=format_count(len(names), "process"),
        )


def _started(facts: GroupFacts, name: str) -> float:
    state: Mapping[str, Any] = (facts.bridges or {}).get(name) or (facts.workers or {}).get(name) or {}
    return float(state.get("clock_skew_since") or state.get("started") or facts.now)
