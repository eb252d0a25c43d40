"""What check, audit and status found, as people read it."""

from collections.abc import Iterable
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from bridge.commands.audit import Audit
from bridge.commands.check import Finding
from bridge.commands.parked import Tier
from bridge.commands.topics import Listed
from bridge.ledger.tally import Line
from bridge.records import policies
from bridge.records.printable import printable

_COLUMNS = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted", "forgotten", "expired")

_COLOURS: Final = {"ok": "green", "warning": "yellow", "fault": "red"}
#: Faults may have several lines, those of a module that cannot be imported for one.
BREAK: Final = "\n"


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """A line for each, its level first."""
    for each in findings:
        text = escape(printable(each.text, keep=BREAK))
        console.print(f"[{_COLOURS[each.level]}]{each.level:>7}[/]  {text}", soft_wrap=True)


def print_audit(console: Console, audit: Audit) -> None:
    """A row a handler and partition, the totals, and the offsets that need a person."""
    table = Table("handler", title=f"audit of {_cell(audit.topic)}", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", *_COLUMNS):
        table.add_column(name, justify="right")
    for line in audit.lines:
        table.add_row(_cell(line.handler), str(line.partition), *(f"{getattr(line, name):,}" for name in _COLUMNS))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in audit.totals.values()))
    _show(console, table)
    for line in audit.lines:
        _print_line(console, f"{audit.topic}-{line.partition} {line.handler}", line)
    for tier in audit.tiers:
        _print_tier(console, tier)
    for deaths in audit.deaths:
        _say(
            console,
            f"{audit.topic} {deaths.handler}: {deaths.count:,} dead, {deaths.reason}, since {deaths.since}; "
            f"the last at {deaths.last}: {deaths.error}",
        )
    for change in audit.log_changes:
        lost = f"; {change.lost:,} of them were never handled" if change.lost else ""
        what = f"the log {change.what}" if change.what != "expired" else "Kafka's retention took unread offsets"
        _say(
            console,
            f"{audit.topic}-{change.partition}: {what}, at {change.at}: from {change.first} to {change.end}{lost}",
            "red" if change.lost else "yellow",
        )
    if audit.clean:
        _say(console, "nothing is unaccounted for", "green")


def _print_tier(console: Console, tier: Tier) -> None:
    if tier.parked or tier.handed:
        wait = f", {tier.delay} s" if tier.delay else ""
        _say(console, f"{tier.topic}: {tier.parked:,} wait there{wait}; {tier.handed:,} of it are handed off")
    if tier.unaccounted:
        _say(console, f"{tier.topic}: {tier.unaccounted:,} records are committed, and were never handed off", "red")


def _print_line(console: Console, place: str, line: Line) -> None:
    if not line.imported:
        _say(console, f"{place}: no handler here has this name; asked for as far as it came", "yellow")
    if line.oldest:
        since = f" (since about {line.oldest_since})" if line.oldest_since else ""
        _say(console, f"{place}: oldest in flight: {_shown(line.oldest)}{since}")
    if line.forgotten:
        _say(
            console,
            f"{place}: forgotten: {line.forgotten:,}, handed off and committed before the ledger was wiped; "
            "what was not settled by then is lost, unless `bridge reset` reads it again",
            "red",
        )
    if line.unaccounted:
        _say(console, f"{place}: unaccounted for: {line.unaccounted:,}, from {_shown(line.unaccounted_at)}", "red")
    if line.parked_nowhere:
        _say(
            console,
            f"{place}: parked, but in no retry topic: {_shown(line.parked_nowhere)}; "
            "`bridge reset` to there with --again lets them run",
            "red",
        )
    if line.letters_missing:
        _say(console, f"{place}: dead, but without a dead letter: {_shown(line.letters_missing)}", "red")


def print_halts(console: Console, found: dict[str, Any]) -> None:
    """How each topic stands after it was halted or resumed, and who has to hear of it yet."""
    for topic, how in found["topics"].items():
        if how["halted"]:
            _say(console, f"{topic} is halted: {how['why']}. `bridge resume {topic}` goes on from exactly there.")
        elif how["changed"]:
            _say(console, f"{topic} goes on.")
        else:
            _say(console, f"{topic} is not halted.")
        _print_unheard(console, how)
    if not found["topics"]:
        _say(console, "no topic is halted.")


def print_topics(console: Console, listed: Listed) -> None:
    """A row a topic, and what is wrong with any."""
    table = Table("topic", "for", "use", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partitions", "kept", "not settled"):
        table.add_column(name, justify="right")
    for seen in listed.found:
        left = listed.left.get(seen.ours.name)
        table.add_row(
            _cell(seen.ours.name),
            _cell(seen.ours.what),
            seen.use,
            "missing" if seen.partitions is None else str(seen.partitions),
            _days(seen.retention_ms),
            "" if left is None else f"{left:,}",
        )
    _show(console, table)
    for words in listed.problems:
        _say(console, words, "yellow")


def _days(retention_ms: int | None) -> str:
    if retention_ms is None:
        return ""
    return "without end" if retention_ms < 0 else f"{retention_ms / 86_400_000:.3g} days"


def print_policies(console: Console, found: dict[str, Any]) -> None:
    """A row a handler and option that is not Celery's or ours by default; what was changed, with who and why."""
    table = Table("handler", "option", "value", "the code says", "changed", box=SIMPLE_HEAD, pad_edge=False)
    for handler, each in found.items():
        changed, first = each["changed"], _cell(handler)
        for option, value in {**each["policy"], **{name: one["is"] for name, one in changed.items()}}.items():
            # Without an end is a value, and no limit that nobody has set.
            if option not in changed and option != "max_retries" and value in (None, []):
                continue
            one = changed.get(option)
            who = "" if one is None else f"by {one['by']} at {one['at']}: {one['why']}"
            code = "" if one is None else policies.word(one["was"])
            table.add_row(first, option, _cell(policies.word(value)), _cell(code), _cell(who))
            first = ""
        table.add_section()
    _show(console, table)
    for handler, each in found.items():
        if each["fault"]:
            _say(console, f"{handler}: what was changed is not in force: {each['fault']}", "red")


def print_policy_decision(console: Console, handler: str, found: dict[str, Any]) -> None:
    """How a handler's policy stands after it was changed, and who has to hear of it yet."""
    print_policies(console, {handler: found})
    if not found["changed"]:
        _say(console, f"the policy of {handler} is its code's.")
    for topic, why in found["tiers"].items():
        _say(console, f"  {topic}: {why}: waits as long as that go through the next that there is", "yellow")
    _print_unheard(console, found)


def print_policy_history(console: Console, handler: str, found: list[dict[str, Any]]) -> None:
    """A line for each change, the latest first."""
    for each in found:
        parts = [policies.words(each["set"])] if each["set"] else []
        if each["unset"]:
            parts.append(f"unset {' '.join(each['unset'])}")
        _say(console, f"{each['at']}  {', '.join(parts)}  by {each['by']}: {each['why']}")
    if not found:
        _say(console, f"the policy of {handler} was never changed.")


def _print_unheard(console: Console, how: dict[str, Any]) -> None:
    if how.get("unpublished"):
        _say(console, f"  Kafka does not have it yet, a bridge tells it: {how['unpublished']}", "yellow")
    if how.get("unmirrored"):
        _say(console, f"  Redis does not have it yet, a bridge tells it: {how['unmirrored']}", "yellow")


def print_status(console: Console, status: dict[str, Any]) -> None:
    """What needs a person; then topics with their lag, queues, bridges and workers."""
    for problem in status["problems"]:
        _say(console, f"! {problem}", "red")
    if not status["problems"]:
        _say(console, "nothing needs a person", "green")
    if status["topics"] is not None:
        _print_topics(console, status["group"], status["topics"])
    for queue, at in (status["queues"] or {}).items():
        workers = "" if at["workers"] is None else f", {at['workers']} workers"
        _say(console, f"queue {queue}: {at['messages']:,} messages{workers}")
    _print_waits(console, status)
    for name, state in (status["bridges"] or {}).items():
        _print_bridge(console, name, state)
    for name, state in (status["workers"] or {}).items():
        queues, count = ", ".join(state["queues"]), len(state["handlers"])
        _say(console, f"worker {name}: {state['processes']} processes, queues {queues}, {count} handlers")
    if status["bridges"] is None and not status["unanswered"]:
        _say(console, "bridges and workers are not shown: that needs a Redis (LEDGER_URL)")


def _print_waits(console: Console, status: dict[str, Any]) -> None:
    for tier in status.get("parked") or ():
        if tier["records"]:
            due = f", the next due at {tier['next_due']}" if tier["next_due"] else ""
            _say(console, f"{tier['topic']}: {tier['records']:,} wait there{due}")
    for each in status["oldest"]:
        if each["seconds"]:
            oldest = "oldest delivery under way for {seconds} s".format(**each)
            _say(console, f"{each['topic']} {each['handler']}: {oldest}")
    for handler, how in status["policies"].items():
        _say(console, f"the policy of {handler} is not its code's: {how}", "yellow")


def _print_topics(console: Console, group: str, topics: dict[str, Any]) -> None:
    table = Table("topic", "partition", "committed", "end", "lag", title=f"group {_cell(group)}")
    for topic, partitions in topics.items():
        if not partitions:
            table.add_row(topic, "does not exist yet", "", "", "")
        for number, at in partitions.items():
            committed = "none" if at["committed"] is None else f"{at['committed']:,}"
            table.add_row(topic, number, committed, f"{at['end']:,}", f"{at['lag']:,}")
    _show(console, table)


def _print_bridge(console: Console, name: str, state: dict[str, Any]) -> None:
    _say(console, f"bridge {name}: {len(state['assigned'])} partitions")
    for place, why in state["paused"].items():
        since = state.get("paused_since", {}).get(place)
        _say(console, f"  {place} is paused{f' since {since}' if since else ''}: {why}", "yellow")
    for each in state.get("waiting", ()):
        _say(
            console,
            "  {topic}-{partition}-{offset} has been with {handler} for {seconds} s; "
            "what comes after it in its order waits".format(**each),
        )
    for handler, size in state.get("batches", {}).items():
        _say(console, "  {handler}: batches of {size}: {why}".format(handler=handler, **size))
    for obstacle in state["obstacles"]:
        _say(console, f"  {obstacle}", "red")


def _show(console: Console, table: Table) -> None:
    """As wide as it is, also in a pipe of 80 columns: a name or a number that is cut is of no use."""
    table.width = Measurement.get(console, console.options.update(max_width=1_000), table).maximum
    console.print(table, crop=False)


def _say(console: Console, text: str, style: str | None = None) -> None:
    """One line, whatever others have put into it: what is in square brackets is no colour, and an escape none."""
    console.print(printable(text), style=style, markup=False, soft_wrap=True)


def _cell(text: str) -> str:
    return escape(printable(text))


def _shown(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))
