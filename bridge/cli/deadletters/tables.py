"""Letters, groups and figures in tables: readable at 80 columns, whatever others have put into them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bridge.commands.printing import EMPTY, cell, say
from bridge.deadletters.questions.shown import Listed
from bridge.records.failure import cut
from bridge.upkeep.facts import span

if TYPE_CHECKING:
    from bridge.deadletters.questions.group_causes import GroupCause
    from bridge.deadletters.questions.groups import Grouped
    from bridge.deadletters.questions.totals import Stats

#: Most characters of an error in a table; `show` has all of it.
ERROR: Final = 160
#: Of a chart of hours, from none to most.
BARS: Final = " ▁▂▃▄▅▆▇█"
COLOURS: Final[Mapping[str, str]] = {
    "open": "red",
    "replaying": "yellow",
    "resolved": "green",
    "discarded": "dim",
    "archived": "dim",
}


def clock(at: int | None) -> str:
    """A time (ms since the epoch) for people, in UTC, to the minute."""
    return "" if at is None else datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def letters(console: Console, found: Iterable[Listed], standing: bool = True) -> None:
    """A row a letter: its id and status, when and what failed, and with what.

    Parameters:
        standing: whether ids and statuses are known: a topic has none.
    """
    table = _table()
    if standing:
        table.add_column("id", justify="right", no_wrap=True)
    table.add_column("failed (UTC)", no_wrap=True)
    table.add_column("delivery", overflow="fold")
    table.add_column("error", overflow="fold")
    for each in found:
        status = f"\n[{COLOURS[each.status]}]{each.status}[/]" if standing else ""
        row = [clock(each.failed_at) + status, _delivery(each), _error(each)]
        table.add_row(*([str(each.id)] if standing else []), *row)
    console.print(table)


def _delivery(each: Listed) -> str:
    # An empty key is one: all that have it belong together.
    key = "" if each.key is None else f", key {cut(each.key.decode('utf-8', 'backslashreplace'), 40) or EMPTY}"
    record = f"{each.topic}-{each.partition}-{each.offset}{key}"
    return cell(record) + (f"\n{cell(each.handler)}" if each.handler else f"\n{cell(each.origin)}")


def _error(each: Listed) -> str:
    again = f", for the {_ordinal(each.failures)} time" if each.failures > 1 else ""
    why = f"{each.reason}{again}"
    said = f"{last_part(each.error_class)}: {each.error_message}".strip(": ")
    return f"{cell(cut(said, ERROR))}\n[dim]{cell(why)}[/]"


def groups(console: Console, found: Iterable["Grouped"], causes: Mapping[int, Sequence["GroupCause"]]) -> None:
    """A row a group: how many of its letters are open, what it is, and since when."""
    table = _table()
    for name in ("id", "open", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what failed", overflow="fold")
    table.add_column("last (UTC)", no_wrap=True)
    for each in found:
        table.add_row(
            str(each.id), f"{each.open:,}", f"{each.count:,}", _group(each), f"{clock(each.last_at)}\n{_lately(each)}"
        )
    console.print(table)
    for group_id, its in causes.items():
        _causes(console, group_id, its)


def _causes(console: Console, group_id: int, causes: Sequence["GroupCause"]) -> None:
    """A row for each cause of a group."""
    table = _table()
    table.add_column("cause", no_wrap=True)
    for name in ("open", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"last message, in group {group_id}", overflow="fold")
    table.add_column("last (UTC)", no_wrap=True)
    for each in causes:
        message = cell(cut(each.newest.error_message, ERROR))
        table.add_row(each.id, f"{each.open:,}", f"{each.count:,}", message, clock(each.last_at))
    console.print(table)


def _group(each: "Grouped") -> str:
    where = f" in {each.place}" if each.place else ""
    said = [each.handler or ", ".join(each.topics), (last_part(each.error_class) or ", ".join(each.reasons)) + where]
    if any(each.versions):
        said.append(f"versions {', '.join(filter(None, each.versions))}")
    if each.fixed_in:
        said.append(f"fixed in {each.fixed_in}, says {each.fixed_by}")
    failed = [f"[red]failed in it all the same, {clock(each.regressed_at)}[/]"] if each.regressed_at else []
    for fix in each.cause_fixes:
        if fix.fixed_in:
            said.append(f"cause {fix.cause} fixed in {fix.fixed_in}, says {fix.fixed_by}")
        elif fix.regressed_at:
            failed.append(f"[red]cause {cell(fix.cause)}: fixed, and failed again, {clock(fix.regressed_at)}[/]")
    return "\n".join([*map(cell, said), *failed])


def _lately(each: "Grouped") -> str:
    if each.growth is not None:
        return f"[red]grows since {clock(each.growth.since)[-5:]}[/]"
    return f"{round(24 * each.rate.day):,} in 24 hours" if each.rate.day else ""


def last_part(error_class: str) -> str:
    """A class without its module, as `--exception` takes it too; `show` says all of it."""
    return error_class.rpartition(".")[2]


def stats(console: Console, found: "Stats") -> None:
    """How many letters have each status, by handler and reason; how fast they come, and how they end."""
    table = _table()
    table.add_column("handler, and why", overflow="fold")
    for status in COLOURS:
        table.add_column(status, justify="right", no_wrap=True)
    for each in found.handled:
        table.add_row(f"{cell(each.handler)}\n{cell(each.reason)}", *_counts(each.statuses))
    table.add_section()
    table.add_row("all", *_counts(found.statuses))
    console.print(table)
    if found.oldest_open is not None:
        age = span((found.at - found.oldest_open) / 1000)
        say(console, f"the oldest that is open failed {age} ago, at {clock(found.oldest_open)}")
    say(
        console, f"the last 24 hours: {chart(found.hours)}  {sum(found.hours):,} failures, at most {max(found.hours):,}"
    )
    if found.growth is not None:
        say(console, f"they grow, since {clock(found.growth.since)}", "red")
    if found.resolved_after is not None:
        half, most = found.resolved_after
        say(console, f"from the first failure to its end: {span(half)} for half of the resolved, {span(most)} for 90%")


def _counts(statuses: Mapping[str, int]) -> list[str]:
    return [f"{statuses.get(status, 0):,}" if statuses.get(status) else "·" for status in COLOURS]


def chart(counts: Sequence[int]) -> str:
    """A bar a count, the highest for the most."""
    most = max(counts, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)


def _ordinal(number: int) -> str:
    end = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{end}"


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
