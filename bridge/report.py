"""Audit and status as tables for people."""

from typing import Any

from rich.console import Console
from rich.table import Table

from bridge.audit import Audit

_COLUMNS = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted")


def print_audit(console: Console, audit: Audit) -> None:
    """A row a handler and partition, the totals, and the offsets that need a person."""
    table = Table("handler", "partition", *_COLUMNS, title=f"audit of {audit.topic}")
    for line in audit.lines:
        table.add_row(line.handler, str(line.partition), *(f"{getattr(line, name):,}" for name in _COLUMNS))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in audit.totals.values()))
    console.print(table)
    for line in audit.lines:
        place = f"{audit.topic}-{line.partition} {line.handler}"
        if line.oldest:
            console.print(f"{place}: oldest in flight: {_shown(line.oldest)}")
        if line.unaccounted:
            console.print(f"[red]{place}: unaccounted for: {line.unaccounted:,}, from {_shown(line.unaccounted_at)}")
        if line.letters_missing:
            console.print(f"[red]{place}: dead, but without a dead letter: {_shown(line.letters_missing)}")
    if audit.clean:
        console.print("[green]nothing is unaccounted for")


def print_status(console: Console, status: dict[str, Any]) -> None:
    """Topics with their lag, then the bridges."""
    table = Table("topic", "partition", "committed", "end", "lag", title=f"group {status['group']}")
    for topic, partitions in status["topics"].items():
        if not partitions:
            table.add_row(topic, "does not exist yet", "", "", "")
        for number, at in partitions.items():
            committed = "none" if at["committed"] is None else f"{at['committed']:,}"
            table.add_row(topic, number, committed, f"{at['end']:,}", f"{at['lag']:,}")
    console.print(table)
    for name, state in (status["bridges"] or {}).items():
        console.print(f"bridge {name}: {len(state['assigned'])} partitions")
        for place, why in state["paused"].items():
            console.print(f"[yellow]  {place} is paused: {why}")
        for each in state.get("waiting", ()):
            console.print(
                "  {topic}-{partition}-{offset} has been with {handler} for {seconds} s; "
                "what comes after it in its order waits".format(**each)
            )
        for obstacle in state["obstacles"]:
            console.print(f"[red]  {obstacle}")
    if status["bridges"] is None:
        console.print("bridges are not shown: that needs a Redis (LEDGER_URL)")
    elif not status["bridges"]:
        console.print("[yellow]no bridge runs")


def _shown(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets))
