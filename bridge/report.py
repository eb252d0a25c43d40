"""Audit and status as tables for people."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from bridge.audit import Audit

_COLUMNS = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted")


def print_audit(console: Console, audit: Audit) -> None:
    """A row a handler and partition, the totals, and the offsets that need a person."""
    table = Table("handler", title=f"audit of {audit.topic}", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", *_COLUMNS):
        table.add_column(name, justify="right")
    for line in audit.lines:
        table.add_row(escape(line.handler), str(line.partition), *(f"{getattr(line, name):,}" for name in _COLUMNS))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in audit.totals.values()))
    _show(console, table)
    for line in audit.lines:
        place = f"{audit.topic}-{line.partition} {line.handler}"
        if line.oldest:
            _say(console, f"{place}: oldest in flight: {_shown(line.oldest)}")
        if line.unaccounted:
            _say(console, f"{place}: unaccounted for: {line.unaccounted:,}, from {_shown(line.unaccounted_at)}", "red")
        if line.letters_missing:
            _say(console, f"{place}: dead, but without a dead letter: {_shown(line.letters_missing)}", "red")
    if audit.clean:
        _say(console, "nothing is unaccounted for", "green")


def print_status(console: Console, status: dict[str, Any]) -> None:
    """Topics with their lag, then the bridges."""
    table = Table("topic", "partition", "committed", "end", "lag", title=f"group {escape(status['group'])}")
    for topic, partitions in status["topics"].items():
        if not partitions:
            table.add_row(topic, "does not exist yet", "", "", "")
        for number, at in partitions.items():
            committed = "none" if at["committed"] is None else f"{at['committed']:,}"
            table.add_row(topic, number, committed, f"{at['end']:,}", f"{at['lag']:,}")
    _show(console, table)
    for name, state in (status["bridges"] or {}).items():
        _say(console, f"bridge {name}: {len(state['assigned'])} partitions")
        for place, why in state["paused"].items():
            _say(console, f"  {place} is paused: {why}", "yellow")
        for each in state.get("waiting", ()):
            _say(
                console,
                "  {topic}-{partition}-{offset} has been with {handler} for {seconds} s; "
                "what comes after it in its order waits".format(**each),
            )
        for obstacle in state["obstacles"]:
            _say(console, f"  {obstacle}", "red")
    if status["bridges"] is None:
        _say(console, "bridges are not shown: that needs a Redis (LEDGER_URL)")
    elif not status["bridges"]:
        _say(console, "no bridge runs", "yellow")


def _show(console: Console, table: Table) -> None:
    """As wide as it is, also in a pipe of 80 columns: a name or a number that is cut is of no use."""
    table.width = Measurement.get(console, console.options.update(max_width=1_000), table).maximum
    console.print(table, crop=False)


def _say(console: Console, text: str, style: str | None = None) -> None:
    """A line as it is: what an error says in square brackets would be taken for a colour, and lost."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def _shown(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))
