"""The problems of deliveries: unaccounted, old, failing or dead ones, and logs that lost records (pure)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from bridge.dispatch.carrier_message import REGISTRY_DOWN, WaitingFailures
from bridge.formats.text_forms import format_count, format_share, inflect_verb
from bridge.jobs.deployment_problems import format_workers
from bridge.jobs.group_facts import GroupFacts, format_known_since, format_record_count, format_since
from bridge.jobs.handler_health import FailingHandler, find_failing_handlers
from bridge.ledger import RETRY_RECORD, KafkaLogChange
from bridge.problems.delivery_problem_rows import DEAD_LETTERS_REFUSED, DELIVERIES_DEAD, HANDLER_FAILING
from bridge.problems.problem import Problem, make_problem
from bridge.problems.topic_problem_rows import DELIVERY_OLD, LOG_CHANGED, RECORDS_UNACCOUNTED
from bridge.problems.worker_problem_rows import HANDLERS_DIFFER

#: Seconds in flight after which a delivery of a removed handler is a problem.
GONE_LONG: Final = 60.0
#: Seconds in flight after which a delivery is too old; longer if its handler's limits and delays allow it.
TOO_OLD: Final = 900.0
#: Seconds for which a change of a log is a problem.
TOLD_FOR: Final = 86_400.0
#: The number of a handler's deliveries that wait for a retry, or the seconds of waiting, that are a problem.
FAILING_MANY: Final = 100
FAILING_LONG: Final = 300.0
#: The seconds of waiting for the schema registry: its errors are its own, and no handler retries them away.
REGISTRY_LONG: Final = 15.0
#: The words for a change of a log after which other records are there, by its stored name.
LOG_CHANGES: Final = {"made anew": "was recreated", "went back": "was truncated"}


def find_partly_known_handlers(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each handler that some, but not all workers of its queue know."""
    for handler in facts.handlers:
        consumers = facts.consumers(handler.queue)
        without = [name for name, state in consumers.items() if handler.name not in state["handlers"]]
        if without and len(without) < len(consumers):
            since = _differ_since(consumers, without)
            yield make_problem(
                HANDLERS_DIFFER,
                handler=handler.name,
                since=since,
                many=len(without),
                counted=f"{len(without)} of {format_count(len(consumers), 'worker')} of queue {handler.queue!r} "
                f"{inflect_verb(len(without), 'do')}",
                began=format_known_since(since, facts.now),
                workers=format_workers(without, consumers),
                share=format_share(len(without), len(consumers), "worker", "do"),
            )


def _differ_since(consumers: Mapping[str, Mapping[str, Any]], without: Collection[str]) -> float | None:
    """Return since when running workers have different handlers: the start of the first of the later kind."""
    began: tuple[list[float], list[float]] = ([], [])
    for name, state in consumers.items():
        if "started" in state:
            began[name in without].append(float(state["started"]))
    return max(map(min, began)) if all(began) else None


def find_unaccounted_deliveries(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each partition with records that are unaccounted for."""
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for state in (facts.bridges or {}).values():
        for gap in state.get("unaccounted", ()):
            if gap["handler"] == RETRY_RECORD:
                by_source.setdefault(_source(facts, gap["topic"]), []).append(gap)
                continue
            partition = f"{gap['topic']}-{gap['partition']}"
            yield make_problem(
                RECORDS_UNACCOUNTED,
                "records",
                topic=gap["topic"],
                handler=gap["handler"],
                since=gap["since"],
                many=gap["count"],
                lost=gap["count"],
                records=f"{format_record_count(gap['count'])} of {partition} {inflect_verb(gap['count'], 'are')}",
                partition=partition,
                counted=_describe_count_start(gap["since"], facts.now),
            )
    for source, of_source in sorted(by_source.items()):
        count, since = (
            sum(gap["count"] for gap in of_source),
            min(gap["since"] for gap in of_source),
        )
        topics = ", ".join(repr(name) for name in sorted({gap["topic"] for gap in of_source}))
        yield make_problem(
            RECORDS_UNACCOUNTED,
            "parked",
            topic=source,
            since=since,
            many=count,
            lost=count,
            records=f"{format_record_count(count)} of {topics} {inflect_verb(count, 'are')}",
            counted=_describe_count_start(since, facts.now),
        )


def _describe_count_start(since: float | None, now: float) -> str:
    """Return a sentence on since when a bridge has counted them: a bridge that starts counts earlier losses anew."""
    return f"Counted {format_since(since, now)} by a bridge that runs; they may have been missing before."


def find_log_changes(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each change of a log in the last day; `bridge audit` lists older ones."""
    recent = [change for change in facts.changes if facts.now - change.at <= TOLD_FOR]
    yield from _find_deleted_topics(facts, [change for change in recent if change.what == "deleted" and change.lost])
    for change in recent:
        place, since = f"{change.topic}-{change.partition}", format_since(change.at, facts.now)
        if change.what == "deleted":
            continue
        if change.lost:
            yield make_problem(
                LOG_CHANGED,
                "retention",
                topic=_source(facts, change.topic),
                since=change.at,
                many=change.lost,
                lost=change.lost,
                records=format_record_count(change.lost),
                partition=place,
                began=since,
                offsets=f"{change.first} to {change.end - 1}",
                audit=_name_audit(facts, change.topic),
            )
        elif change.what != "expired":
            yield make_problem(
                LOG_CHANGED,
                "other records",
                topic=_source(facts, change.topic),
                since=change.at,
                lost=None,
                partition=place,
                happened=LOG_CHANGES.get(change.what, change.what),
                began=since,
                first=change.first,
                check="who deletes topics" if change.what == "made anew" else "Kafka's disks and elections",
            )


def _find_deleted_topics(facts: GroupFacts, deletions: Iterable[KafkaLogChange]) -> Iterator[Problem]:
    """Yield a problem for each deleted retry or replay topic that had waiting records."""
    by_topic: dict[str, list[KafkaLogChange]] = {}
    for gone in facts.gone:
        if gone.missing:
            yield make_problem(
                LOG_CHANGED,
                "parked deliveries",
                topic=gone.source,
                since=gone.at,
                many=gone.missing,
                lost=gone.missing,
                deleted=gone.topic,
                began=format_since(gone.at, facts.now),
                parked=f"{format_count(gone.missing, 'delivery')} of {gone.source!r} "
                f"{inflect_verb(gone.missing, 'are')}",
                whose=gone.whose,
            )
    told = {gone.topic for gone in facts.gone if gone.missing}
    for change in deletions:
        if change.topic in told:
            continue
        by_topic.setdefault(change.topic, []).append(change)
    for topic, changes in sorted(by_topic.items()):
        since, count = min(change.at for change in changes), sum(change.lost for change in changes)
        yield make_problem(
            LOG_CHANGED,
            "deleted topic",
            topic=_source(facts, topic),
            since=since,
            many=count,
            lost=count,
            deleted=topic,
            began=format_since(since, facts.now),
            records=format_record_count(count),
            audit=_name_audit(facts, topic),
        )


def _name_audit(facts: GroupFacts, topic: str) -> str:
    """Return the command that lists what a retry or replay topic has lost; empty for a source topic."""
    tier = next((tier for tier in facts.tiers if tier.topic == topic and tier.kind != "source"), None)
    source = facts.sources.get(topic) if tier is None else tier.source
    if not source:
        return ""
    return f" (`bridge audit {source}` lists those that are parked and in no retry topic, and says how to run them)"


def _source(facts: GroupFacts, topic: str) -> str:
    return next((tier.source for tier in facts.tiers if tier.topic == topic), facts.sources.get(topic, topic))


def find_old_deliveries(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each topic and handler with a delivery that has been in flight for too long."""
    limits = {handler.name: max(TOO_OLD, 2 * handler.longest_wait) for handler in facts.handlers}
    queues = {handler.name: handler.queue for handler in facts.handlers}
    for (topic, name), seconds in sorted(facts.oldest.items()):
        if _waits_by_decision(facts, topic, name):
            continue
        if name == RETRY_RECORD:
            if seconds >= max(limits.values(), default=TOO_OLD):
                yield _describe_old(facts, f"from {topic!r}", seconds, "has not finished", _source(facts, topic))
            continue
        if name not in queues and facts.workers is not None and not _known_anywhere(facts, name):
            if seconds >= GONE_LONG:
                yield _describe_removed_handler(facts, topic, name, seconds)
            continue
        # If no worker runs the handler, that is the problem.
        knowing = facts.workers is None or name not in queues or _knowing(facts, name, queues[name])
        if seconds >= limits.get(name, TOO_OLD) and knowing:
            stands = "is neither settled nor waiting for its retry"
            yield _describe_old(facts, f"of {topic!r} to {name}", seconds, stands, topic, name)


def _waits_by_decision(facts: GroupFacts, topic: str, handler: str) -> bool:
    """Return whether a halt or a breaker keeps a delivery waiting; from a retry topic it may be of any handler."""
    source = _source(facts, topic)
    if source in facts.halts:
        return True
    names = [known.name for known in facts.handlers if source in known.topics] if handler == RETRY_RECORD else [handler]
    halted = {halt.scope.handler for halt in facts.handler_halts if halt.scope.topic == source}
    return any(name in facts.waiting_for_needs or name in halted for name in names)


def _describe_old(
    facts: GroupFacts, which: str, seconds: float, stands: str, topic: str, handler: str | None = None
) -> Problem:
    since = facts.now - seconds
    return make_problem(
        DELIVERY_OLD,
        "in flight",
        topic=topic,
        handler=handler,
        since=since,
        which=which,
        began=format_since(since, facts.now),
        stands=stands,
        see=f"celery -A {facts.app} inspect active",
    )


def find_failing_deliveries(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each handler whose attempts fail, or whose deliveries wait long for a retry."""
    waiting = {(sample.handler, sample.kind): sample for sample in _sum_waiting_failures(facts)}
    names = dict.fromkeys(
        [*facts.unpublished, *(sample.handler for sample in waiting.values() if sample.kind != "failed")]
    )
    for name in names:
        yield _describe_unpublished(facts, name, waiting.get((name, "unpublished")))
    rates = find_failing_handlers(facts)
    for name, rate in rates.items():
        yield _describe_failing(facts, name, rate, waiting.get((name, "failed")))
    known = {handler.name: handler.queue for handler in facts.handlers}
    for (name, kind), sample in waiting.items():
        # A handler that no worker runs does not fail now, and has a problem of its own.
        runs = facts.workers is None or name not in known or _knowing(facts, name, known[name])
        limit = REGISTRY_LONG if sample.error.startswith(REGISTRY_DOWN) else FAILING_LONG
        long = sample.since is not None and facts.now - sample.since >= limit
        if kind == "failed" and name not in rates and runs and (sample.count >= FAILING_MANY or long):
            yield _describe_waiting(facts, sample)


def _describe_unpublished(facts: GroupFacts, name: str, sample: WaitingFailures | None) -> Problem:
    """Return the problem of dead letters that Kafka refuses, by the ledger's count or a sample."""
    counted = facts.unpublished.get(name)
    count = max(counted.many if counted else 0, sample.count if sample else 0)
    known = [times.since for times in (counted, sample) if times is not None and times.since]
    since = min(known, default=None)
    least = "at least " if counted is None and sample is not None and sample.more else ""
    error = counted.error if counted else sample.error if sample else ""
    return make_problem(
        DEAD_LETTERS_REFUSED,
        handler=name,
        since=since,
        many=count,
        deliveries=f"{least}{format_count(count, 'delivery')}",
        began=format_since(since, facts.now) if since else "since when is not known",
        error=error.rstrip(". "),
    )


def _describe_failing(facts: GroupFacts, name: str, rate: FailingHandler, sample: WaitingFailures | None) -> Problem:
    """Return the problem of a handler whose attempts fail, all or a share of them."""
    if _waits_for_registry(facts, name, rate.error):
        return _describe_registry_down(facts, name, rate.error, rate.since, sample)
    waits = (
        f"; {'at least ' if sample.more else ''}{format_count(sample.count, 'delivery', 'wait')} for a retry"
        if sample
        else ""
    )
    return make_problem(
        HANDLER_FAILING,
        "all" if rate.all else "some",
        handler=name,
        since=rate.since,
        many=rate.failed,
        began=format_since(rate.since, facts.now),
        attempts=format_count(rate.failed, "attempt") if rate.all else f"{rate.of:,}",
        failed=f"{rate.failed:,}",
        share=f"{rate.failed / rate.of:.0%}" if rate.of else "",
        waits=waits,
        error=(rate.error or (sample.error if sample else "")).rstrip(". "),
        advice=_advise(facts, name, retried=sample is not None),
        remedy="fix the cause: the deliveries run again" if sample else "fix the cause, then replay the dead letters",
    )


def _describe_waiting(facts: GroupFacts, sample: WaitingFailures) -> Problem:
    """Return the problem of many deliveries that wait for a retry, or of few for long."""
    if _waits_for_registry(facts, sample.handler, sample.error):
        return _describe_registry_down(facts, sample.handler, sample.error, sample.since, sample)
    return make_problem(
        HANDLER_FAILING,
        "waiting",
        handler=sample.handler,
        since=sample.since or None,
        many=sample.count,
        deliveries=f"{'At least ' if sample.more else ''}{format_count(sample.count, 'delivery')}",
        began=format_since(sample.since, facts.now) if sample.since else "since when is not known",
        error=sample.error.rstrip(". "),
        advice=_advise(facts, sample.handler),
    )


def _waits_for_registry(facts: GroupFacts, handler: str, error: str) -> bool:
    """Return whether deliveries run again as soon as the schema registry answers: those of a halted topic do not."""
    topics = next((known.topics for known in facts.handlers if known.name == handler), ())
    return error.startswith(REGISTRY_DOWN) and facts.halts.keys().isdisjoint(topics)


def _describe_registry_down(
    facts: GroupFacts, handler: str, error: str, since: float | None, sample: WaitingFailures | None
) -> Problem:
    """Return the problem of deliveries that wait for the schema registry."""
    count = format_count(sample.count, "delivery", "wait") if sample else "Some may wait"
    return make_problem(
        HANDLER_FAILING,
        "registry",
        handler=handler,
        since=since or None,
        many=sample.count if sample else None,
        began=format_since(since, facts.now) if since else "since when is not known",
        error=error.removeprefix(REGISTRY_DOWN).rstrip(". "),
        deliveries=f"At least {count}" if sample and sample.more else count,
    )


def _advise(facts: GroupFacts, handler: str, retried: bool = True) -> str:
    """Return what to do about failed deliveries, and whether they run: those of a halted topic do not.

    Parameters:
        retried: whether some are seen to wait for a retry; else each may be a dead letter already.
    """
    topics = next((known.topics for known in facts.handlers if known.name == handler), ())
    halted = [topic for topic in topics if topic in facts.halts]
    named = ", ".join(map(repr, halted))
    if halted and len(halted) == len(topics):
        return f"They wait while {named} is halted: fix the cause, then `bridge resume {' '.join(halted)}`."
    waits = f" Those of {named} wait while it is halted." if halted else ""
    fate = (
        "Those that wait are retried, and become dead letters when their retries are spent."
        if retried
        else "Deliveries whose error the handler retries (autoretry_for) run again; any other error makes a dead "
        "letter at once: replay those."
    )
    return f"Fix the cause. {fate}{waits}"


def _sum_waiting_failures(facts: GroupFacts) -> list[WaitingFailures]:
    """Return by handler and kind the deliveries that wait after a failure, in the broker and in Kafka together.

    Deliveries that wait for a dependency are not among them.
    """
    sums: dict[tuple[str, str], WaitingFailures] = {}
    for sample in (*facts.failing, *(sample for tier in facts.tiers if tier.waits for sample in tier.failed)):
        if sample.kind == "failed" and sample.handler in facts.waiting_for_needs:
            continue
        key = (sample.handler, sample.kind)
        sums[key] = sums[key].with_more(sample) if key in sums else sample
    return list(sums.values())


def find_dead_deliveries(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each handler with dead deliveries; beyond the sample their first is not known."""
    for dead in facts.letters:
        since = format_since(dead.since, facts.now)
        yield make_problem(
            DELIVERIES_DEAD,
            handler=dead.handler,
            since=None if dead.more else dead.since,
            many=dead.count,
            deliveries=f"{'At least ' if dead.more else ''}{format_count(dead.count, 'delivery')} of {dead.handler} "
            f"{inflect_verb(dead.count, 'are')}",
            began=f"the latest {dead.count:,} {since}" if dead.more else since,
            reason=dead.reason,
            error=dead.error.rstrip(". "),
            dead_letter_topic=dead.topic,
        )


def _describe_removed_handler(facts: GroupFacts, topic: str, name: str, seconds: float) -> Problem:
    since = facts.now - seconds
    return make_problem(
        DELIVERY_OLD,
        "handler removed",
        topic=topic,
        handler=name,
        since=since,
        began=format_since(since, facts.now),
    )


def _knowing(facts: GroupFacts, handler: str, queue: str | None) -> bool:
    return any(handler in state["handlers"] for state in facts.consumers(queue or "").values())


def _known_anywhere(facts: GroupFacts, handler: str) -> bool:
    return any(handler in state["handlers"] for state in (facts.workers or {}).values())
