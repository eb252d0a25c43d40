"""The tables that commands print: check, audit, topics, status, halts and policies."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge.formats import group_decision
from bridge.formats.text_forms import format_count, inflect_verb, make_printable
from bridge.inspection.delivery_problems import LOG_CHANGES
from bridge.inspection.setup_check import CheckFinding
from bridge.inspection.terminal_output import LINE_BREAK, make_cell, print_line, print_table
from bridge.inspection.topic_audit import COUNTED, LogChange, TopicAudit
from bridge.inspection.topic_list import TopicList
from bridge.inspection.topic_problems import find_unreadable_partitions
from bridge.jobs.group_facts import format_span
from bridge.ledger.unaccounted_offsets import AuditLine
from bridge.ledger.unsettled_retry_records import RetryTopicCount
from bridge.operator_actions.handler_halt import read_scope

_COLOURS: Final = {"ok": "green", "warning": "yellow", "fault": "red"}


def print_findings(console: Console, findings: Iterable[CheckFinding]) -> None:
    """Print a line for each finding, its level first."""
    for finding in findings:
        text = escape(make_printable(finding.text, keep=LINE_BREAK))
        console.print(f"[{_COLOURS[finding.level]}]{finding.level:>7}[/]  {text}", soft_wrap=True)


def print_audit(console: Console, audit: TopicAudit) -> None:
    """Print a row for each handler and partition, the totals, and the offsets that need a person."""
    print_table(console, _fates(audit))
    for line in audit.lines:
        _print_line(console, f"{audit.topic}-{line.partition} {line.handler}", line)
    for tier in audit.tiers:
        _print_tier(console, tier)
    for deaths in audit.deaths:
        print_line(
            console,
            f"{audit.topic} {deaths.handler}: {deaths.count:,} dead, {deaths.reason}, since {deaths.since}; "
            f"the last at {deaths.last}: {deaths.error}",
        )
    for transaction in audit.open_transactions:
        print_line(
            console,
            f"{audit.topic}-{transaction.partition}: a transaction that began at offset {transaction.offset} is open: "
            f"{format_count(transaction.records, 'offset')} from there on "
            f"{inflect_verb(transaction.records, 'are')} not counted, "
            "and no consumer gets any. If it stays "
            "open, run `kafka-transactions.sh find-hanging`",
            "yellow",
        )
    for change in audit.log_changes:
        _print_change(console, audit.topic, change)
    for problem in find_unreadable_partitions(audit.unreadable):
        print_line(console, problem, "red")
    if audit.clean:
        print_line(console, "nothing is unaccounted for", "green")


def _fates(audit: TopicAudit) -> Table:
    table = Table("handler", title=f"audit of {make_cell(audit.topic)}", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", *COUNTED):
        table.add_column(name, justify="right")
    for line in audit.lines:
        table.add_row(make_cell(line.handler), str(line.partition), *(f"{getattr(line, name):,}" for name in COUNTED))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in audit.totals.values()))
    return table


def _print_change(console: Console, topic: str, change: LogChange) -> None:
    place, lost = f"{topic}-{change.partition}", ""
    if change.what in LOG_CHANGES:
        what, offsets = f"the log {LOG_CHANGES[change.what]}", f"other records are there from offset {change.first} on"
    else:
        what = "Kafka's retention deleted unread offsets" if change.what == "expired" else f"the log was {change.what}"
        offsets = f"from {change.first} to {change.end}"
        lost = f"; {change.lost:,} of them were never handled" if change.lost else ""
    print_line(console, f"{place}: {what}, at {change.at}: {offsets}{lost}", "red" if change.lost else "yellow")


def _print_tier(console: Console, tier: RetryTopicCount) -> None:
    if tier.parked or tier.handed:
        wait = f", {tier.delay} s" if tier.delay else ""
        print_line(
            console,
            f"{tier.topic}: {format_count(tier.parked, 'record', 'wait')} there{wait}; "
            f"{tier.handed:,} of it {inflect_verb(tier.handed, 'are')} handed off",
        )
    if tier.unaccounted:
        print_line(
            console,
            f"{tier.topic}: {format_count(tier.unaccounted, 'record', 'are')} committed, but "
            f"{inflect_verb(tier.unaccounted, 'were')} never handed off",
            "red",
        )


def _print_line(console: Console, place: str, line: AuditLine) -> None:
    if not line.imported:
        print_line(console, f"{place}: no handler here has this name; counted up to its last offset", "yellow")
    if line.oldest:
        since = f" (since about {line.oldest_since})" if line.oldest_since else ""
        print_line(console, f"{place}: oldest in flight: {_shown(line.oldest)}{since}")
    if line.forgotten:
        print_line(
            console,
            f"{place}: forgotten: {line.forgotten:,}, from {_shown(line.forgotten_at)}: handed off and committed "
            "before the ledger was wiped; "
            "deliveries that were not settled before are lost, unless `bridge reset` reads them again",
            "red",
        )
    if line.evicted:
        print_line(
            console,
            f"{place}: evicted: Redis dropped the pages of {format_count(line.evicted, 'offset')} before they "
            "could expire; done "
            "deliveries may run again, those in flight may be lost. Set maxmemory-policy noeviction",
            "red",
        )
    if line.unaccounted:
        begin = f", from {_shown(line.unaccounted_at)}" if line.unaccounted_at else ""
        print_line(console, f"{place}: unaccounted for: {line.unaccounted:,}{begin}", "red")
    if line.parked_nowhere:
        print_line(
            console,
            f"{place}: parked, but in no retry topic: {_shown(line.parked_nowhere)}; "
            "`bridge reset` to the first of them with --again runs them, and runs again every later delivery, done "
            "ones too: use it only if the handlers are idempotent",
            "red",
        )
    if line.letters_missing:
        print_line(console, f"{place}: dead, but without a dead letter: {_shown(line.letters_missing)}", "red")


def describe_released(topic: str, line: AuditLine) -> str:
    """Return a sentence on the missing offsets of an audit line that a reset lets go."""
    kinds: tuple[tuple[str, int, list[int]], ...] = (
        ("forgotten", line.forgotten, line.forgotten_at),
        ("unaccounted for", line.unaccounted, line.unaccounted_at),
        ("evicted", line.evicted, []),
    )
    counts = [
        f"{kind}: {count:,}{f', from {_shown(offsets)}' if offsets else ''}" for kind, count, offsets in kinds if count
    ]
    return (
        f"{topic}-{line.partition} {line.handler}: lets go {format_count(line.missing, 'missing offset')} below "
        f"{line.end} ({'; '.join(counts)}): they do not run, and `bridge audit` no longer reports them"
    )


def print_topics(console: Console, listed: TopicList) -> None:
    """Print a row for each topic, and the problems."""
    table = Table("topic", "for", "use", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partitions", "kept", "not settled"):
        table.add_column(name, justify="right")
    for seen in listed.found:
        left = listed.left.get(seen.ours.name)
        table.add_row(
            make_cell(seen.ours.name),
            make_cell(seen.ours.what),
            seen.use,
            "missing" if seen.partitions is None else str(seen.partitions),
            _days(seen.retention_ms),
            "" if left is None else f"{left:,}",
        )
    print_table(console, table)
    for words in (*listed.problems, *filter(None, [listed.unknown])):
        print_line(console, words, "yellow")


def _days(retention_ms: int | None) -> str:
    if retention_ms is None:
        return ""
    return "without end" if retention_ms < 0 else f"{retention_ms / 86_400_000:.3g} days"


def print_status(console: Console, status: dict[str, Any]) -> None:
    """Print the problems; then topics with their lag, queues, bridges and workers."""
    names = (f" ({values['id']})" for values in status.get("problem_values", ()))
    for problem, name in zip_longest(status["problems"], names, fillvalue=""):
        print_line(console, f"! {problem}{name}", "red")
    if not status["problems"]:
        print_line(console, "nothing needs a person", "green")
    if status["topics"] is not None:
        _print_topics(console, status["group"], status["topics"])
    for queue, at in (status["queues"] or {}).items():
        workers = "" if at["workers"] is None else f", {format_count(at['workers'], 'worker')}"
        print_line(console, f"queue {queue}: {format_count(at['messages'], 'message')}{workers}")
    _print_waits(console, status)
    for name, state in (status["bridges"] or {}).items():
        _print_bridge(console, name, state)
    for name, state in (status["workers"] or {}).items():
        queues, count = ", ".join(state["queues"]), len(state["handlers"])
        # An older worker does not announce the versions of its handlers.
        of = ", ".join(sorted({version for version in state.get("handler_versions", {}).values() if version}))
        versions = f" (version {of})" if of else ""
        print_line(
            console,
            f"worker {name}: {format_count(state['processes'], 'process')}, queues {queues}, "
            f"{format_count(count, 'handler')}{versions}",
        )
    _print_unknown(console, status)


def _print_unknown(console: Console, status: dict[str, Any]) -> None:
    """Print the members that may run, and what else is not known."""
    for kind, members in status.get("unconfirmed", {}).items():
        for name, member in members.items():
            seen = f", last seen {member['last_seen']} at the latest" if member["last_seen"] else ""
            print_line(console, f"{kind[:-1]} {name}: not confirmed{seen}", "yellow")
    if status["bridges"] is None and not status["unanswered"]:
        print_line(console, "bridges and workers are not shown, because there is no Redis: set LEDGER_URL")
    for sentence in status.get("unknown", ()):
        print_line(console, sentence, "yellow")


def _print_waits(console: Console, status: dict[str, Any]) -> None:
    for tier in status.get("parked") or ():
        if tier["records"]:
            due = f", the next due at {tier['next_due']}" if tier["next_due"] else ""
            if tier["late_seconds"]:
                due = f", the first was due at {tier['next_due']} and is {format_span(tier['late_seconds'])} late"
            print_line(console, f"{tier['topic']}: {format_count(tier['records'], 'record', 'wait')} there{due}")
    for delivery in status["oldest"]:
        if delivery["seconds"]:
            oldest = "oldest delivery in flight for {seconds} s".format(**delivery)
            print_line(console, f"{delivery['topic']} {delivery['handler']}: {oldest}")
    for limit in status.get("limits", {}).items():
        print_line(console, describe_limit(*limit))
    for handler, how in status["policies"].items():
        print_line(console, f"the policy of {handler} was {how}", "yellow")


def describe_limit(name: str, limit: Mapping[str, Any]) -> str:
    """Return the words for a limit of `bridge status --json`: its numbers, and how many run and wait."""
    numbers = []
    if limit.get("per_second") is not None:
        numbers.append(f"{limit['per_second']:g} a second, bursts of {limit['burst']:,}")
    if limit.get("concurrency") is not None:
        numbers.append(f"{limit['running']:,} of {limit['concurrency']:,} running")
    if not limit["waiting"]:
        return f"limit {name}: {', '.join(numbers)}; no delivery waits"
    waits, span = format_count(limit["waiting"], "delivery", "wait"), format_span(limit["wait_seconds"])
    return f"limit {name}: {', '.join(numbers)}; about {waits} up to {span}"


def _print_topics(console: Console, group: str, topics: dict[str, Any]) -> None:
    table = Table("topic", "partition", "committed", "end", "lag", title=f"group {make_cell(group)}")
    for topic, partitions in topics.items():
        if not partitions:
            table.add_row(topic, "does not exist yet", "", "", "")
        for number, at in partitions.items():
            committed = "none" if at["committed"] is None else f"{at['committed']:,}"
            table.add_row(topic, number, committed, f"{at['end']:,}", f"{at['lag']:,}")
    print_table(console, table)


def _print_bridge(console: Console, name: str, state: dict[str, Any]) -> None:
    print_line(console, f"bridge {name}: {format_count(len(state['assigned']), 'partition')}")
    for place, why in state["paused"].items():
        since = state.get("paused_since", {}).get(place)
        print_line(console, f"  {place} is paused{f' since {since}' if since else ''}: {why}", "yellow")
    for wait in state.get("waiting", ()):
        print_line(
            console,
            "  {topic}-{partition}-{offset} has been with {handler} for {seconds} s; "
            "later deliveries of its order wait".format(**wait),
        )
    for handler, size in state.get("batches", {}).items():
        print_line(console, "  {handler}: batches of {size}: {why}".format(handler=handler, **size))
    for obstacle in state["obstacles"]:
        print_line(console, f"  {obstacle}", "red")


def _shown(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))


def print_halts(console: Console, halts: dict[str, Any]) -> None:
    """Print the state of each topic, handler or key after halt or resume, and which server lacks the decision."""
    for topic, how in halts["topics"].items():
        if how["halted"]:
            still = "" if how["changed"] else "still "
            print_line(
                console,
                f"{topic} is {still}halted: {how['why']}. `bridge resume {topic}` continues exactly where it stopped.",
            )
        elif how["changed"]:
            print_line(console, f"{topic} is resumed.")
        else:
            print_line(console, f"{topic} is not halted.")
        _print_incomplete(console, how)
    for how in halts.get("handlers", ()):
        _print_handler_halt(console, how)
    if not halts["topics"] and not halts.get("handlers"):
        print_line(console, "nothing is halted.")


def _print_handler_halt(console: Console, how: dict[str, Any]) -> None:
    scope = read_scope(how["topic"], how["handler"], how["key"])
    if how["halted"]:
        still = "" if how["changed"] else "still "
        others = " All else of the topic goes on." if how.get("others_run", True) else ""
        print_line(
            console,
            f"{scope.words} is {still}halted: {how['why']}.{others} "
            f"`bridge resume {scope.arguments}` continues exactly where it stopped.",
        )
    else:
        print_line(console, f"{scope.words} is {'resumed' if how['changed'] else 'not halted'}.")
    _print_incomplete(console, how)


def print_policies(console: Console, policies: dict[str, Any]) -> None:
    """Print a row for each handler and option that is not the default; a changed one with who and why."""
    table = Table("handler", "option", "value", "the code says", "changed", box=SIMPLE_HEAD, pad_edge=False)
    for handler, decision in policies.items():
        changed, first = decision["changed"], make_cell(handler)
        for option, value in {**decision["policy"], **{name: one["is"] for name, one in changed.items()}}.items():
            # `None` is a value of max_retries (no limit); for other options it is the default.
            if option not in changed and option != "max_retries" and value in (None, []):
                continue
            one = changed.get(option)
            who = "" if one is None else f"by {one['by']} at {one['at']}: {one['why']}"
            code = "" if one is None else group_decision.format_option_value(one["was"])
            table.add_row(
                first, option, make_cell(group_decision.format_option_value(value)), make_cell(code), make_cell(who)
            )
            first = ""
        table.add_section()
    print_table(console, table)
    for handler, decision in policies.items():
        if decision["fault"]:
            print_line(console, f"{handler}: the changed policy is not in force: {decision['fault']}", "red")


def print_policy_decision(console: Console, handler: str, decision: dict[str, Any]) -> None:
    """Print a handler's policy after a change, and which server does not have the change yet."""
    print_policies(console, {handler: decision})
    if not decision["changed"]:
        print_line(console, f"the policy of {handler} is that of its code.")
    for topic, why in decision["tiers"].items():
        print_line(
            console, f"  {topic}: {why}: deliveries with this wait use the next retry topic that exists", "yellow"
        )
    _print_incomplete(console, decision)


def print_policy_history(console: Console, handler: str, steps: list[dict[str, Any]]) -> None:
    """Print a line for each change, the latest first."""
    for step in steps:
        parts = [group_decision.format_options(step["set"])] if step["set"] else []
        if step["unset"]:
            parts.append(f"unset {' '.join(step['unset'])}")
        print_line(console, f"{step['at']}  {', '.join(parts)}  by {step['by']}: {step['why']}")
    if not steps:
        print_line(console, f"the policy of {handler} was never changed.")


def _print_incomplete(console: Console, how: dict[str, Any]) -> None:
    if how.get("unpublished"):
        print_line(
            console,
            "  NOT SAFE YET: Redis alone has it. If Redis is wiped before a bridge writes it to Kafka, it is lost, and "
            f"the earlier decision is in force again. Run the command again after this is fixed: {how['unpublished']}",
            "yellow",
        )
    if how.get("unmirrored"):
        print_line(console, f"  Redis does not have it yet; a bridge writes it there: {how['unmirrored']}", "yellow")
