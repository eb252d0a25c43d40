"""Letters, failure groups and figures as text: tables, one whole letter, and its value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bridge.deadletters.editing.value_diff import diff_values
from bridge.deadletters.model.failure_location import is_user_frame
from bridge.deadletters.model.letter_view import LetterLine, LetterView, build_timeline, format_bytes, format_moment
from bridge.deadletters.model.payload_view import PayloadView, view_payload
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.formats.failure import cut
from bridge.formats.text_forms import format_count
from bridge.inspection.terminal_output import EMPTY_KEY, make_cell, print_line
from bridge.jobs.group_facts import format_span

if TYPE_CHECKING:
    from bridge.deadletters.inspection.failure_groups import GroupState
    from bridge.deadletters.inspection.group_details import GroupCause
    from bridge.deadletters.inspection.letter_statistics import LetterStatistics

#: Most characters of an error in a table; `show` has all of it.
MAX_ERROR_CHARACTERS: Final = 160
#: The bars of a chart of hours, from none to most.
CHART_BARS: Final = " ▁▂▃▄▅▆▇█"
COLOURS: Final[Mapping[str, str]] = {
    "open": "red",
    "replaying": "yellow",
    "resolved": "green",
    "discarded": "dim",
    "archived": "dim",
}


def format_minute(at: int | None) -> str:
    """Return a time (ms since the epoch) for people, in UTC, to the minute."""
    return "" if at is None else datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def print_letters(console: Console, found: Iterable[LetterLine], standing: bool = True) -> None:
    """Print a row for each letter: id and status, time, delivery, and error.

    Parameters:
        standing: whether ids and statuses are known: a topic has none.
    """
    table = _build_table()
    if standing:
        table.add_column("id", justify="right", no_wrap=True)
    table.add_column("failed (UTC)", no_wrap=True)
    table.add_column("delivery", overflow="fold")
    table.add_column("error", overflow="fold")
    for line in found:
        status = f"\n[{COLOURS[line.status]}]{line.status}[/]" if standing else ""
        row = [format_minute(line.failed_at) + status, _format_delivery(line), _format_error(line)]
        table.add_row(*([str(line.id)] if standing else []), *row)
    console.print(table)


def _format_delivery(each: LetterLine) -> str:
    # An empty key is a key too: all records with it are ordered.
    key = "" if each.key is None else f", key {cut(each.key.decode('utf-8', 'backslashreplace'), 40) or EMPTY_KEY}"
    record = f"{each.topic}-{each.partition}-{each.offset}{key}"
    return make_cell(record) + (f"\n{make_cell(each.handler)}" if each.handler else f"\n{make_cell(each.origin)}")


def _format_error(each: LetterLine) -> str:
    again = f", for the {_format_ordinal(each.failures)} time" if each.failures > 1 else ""
    why = f"{each.reason}{again}"
    said = f"{get_class_name(each.error_class)}: {each.error_message}".strip(": ")
    return f"{make_cell(cut(said, MAX_ERROR_CHARACTERS))}\n[dim]{make_cell(why)}[/]"


def print_groups(console: Console, found: Iterable["GroupState"], causes: Mapping[int, Sequence["GroupCause"]]) -> None:
    """Print a row for each group: how many of its letters are open, its failure, and since when."""
    table = _build_table()
    for name in ("id", "open", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what failed", overflow="fold")
    table.add_column("last (UTC)", no_wrap=True)
    for group in found:
        table.add_row(
            str(group.id),
            f"{group.open:,}",
            f"{group.count:,}",
            _format_group(group),
            f"{format_minute(group.last_at)}\n{_format_recent(group)}",
        )
    console.print(table)
    for group_id, its in causes.items():
        _print_causes(console, group_id, its)


def _print_causes(console: Console, group_id: int, causes: Sequence["GroupCause"]) -> None:
    """Print a row for each cause of a group."""
    table = _build_table()
    table.add_column("cause", no_wrap=True)
    for name in ("open", "all"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"last message, in group {group_id}", overflow="fold")
    table.add_column("last (UTC)", no_wrap=True)
    for cause in causes:
        message = make_cell(cut(cause.newest.error_message, MAX_ERROR_CHARACTERS))
        table.add_row(make_cell(cause.id), f"{cause.open:,}", f"{cause.count:,}", message, format_minute(cause.last_at))
    console.print(table)


def _format_group(each: "GroupState") -> str:
    where = f" in {each.place}" if each.place else ""
    said = [
        each.handler or ", ".join(each.topics),
        (get_class_name(each.error_class) or ", ".join(each.reasons)) + where,
    ]
    if any(each.versions):
        said.append(f"versions {', '.join(filter(None, each.versions))}")
    if each.fixed_in:
        said.append(f"fixed in {each.fixed_in}, by {each.fixed_by}")
    failed = [f"[red]failed in that version, {format_minute(each.regressed_at)}[/]"] if each.regressed_at else []
    for fix in each.cause_fixes:
        if fix.fixed_in:
            said.append(f"cause {fix.cause} fixed in {fix.fixed_in}, by {fix.fixed_by}")
        elif fix.regressed_at:
            failed.append(
                f"[red]cause {make_cell(fix.cause)}: fixed, and failed again, {format_minute(fix.regressed_at)}[/]"
            )
    return "\n".join([*map(make_cell, said), *failed])


def _format_recent(each: "GroupState") -> str:
    if each.growth is not None:
        return f"[red]grows since {format_minute(each.growth.since)[-5:]}[/]"
    return f"{round(24 * each.rate.day):,} in 24 hours" if each.rate.day else ""


def get_class_name(error_class: str) -> str:
    """Return a class without its module, as `--exception` accepts it too; `show` has the full name."""
    return error_class.rpartition(".")[2]


def print_stats(console: Console, found: "LetterStatistics") -> None:
    """Print how many letters have each status, by handler and reason; their rate, and how they end."""
    table = _build_table()
    table.add_column("handler, and why", overflow="fold")
    for status in COLOURS:
        table.add_column(status, justify="right", no_wrap=True)
    for each in found.handled:
        table.add_row(f"{make_cell(each.handler)}\n{make_cell(each.reason)}", *_format_counts(each.statuses))
    table.add_section()
    table.add_row("all", *_format_counts(found.statuses))
    console.print(table)
    if found.oldest_open is not None:
        age = format_span((found.at - found.oldest_open) / 1000)
        print_line(console, f"the oldest open letter failed {age} ago, at {format_minute(found.oldest_open)}")
    print_line(
        console,
        f"the last 24 hours: {draw_chart(found.hours)}  {format_count(sum(found.hours), 'failure')}, at most "
        f"{max(found.hours):,}",
    )
    if found.growth is not None:
        print_line(console, f"failures grow since {format_minute(found.growth.since)}", "red")
    if found.resolved_after is not None:
        half, most = found.resolved_after
        print_line(
            console,
            f"from the first failure to its end: {format_span(half)} for half of the resolved, {format_span(most)} "
            f"for 90%",
        )


def _format_counts(statuses: Mapping[str, int]) -> list[str]:
    return [f"{statuses.get(status, 0):,}" if statuses.get(status) else "·" for status in COLOURS]


def draw_chart(counts: Sequence[int]) -> str:
    """Return a bar for each count, the highest for the largest."""
    most = max(counts, default=0) or 1
    return "".join(CHART_BARS[-(-count * (len(CHART_BARS) - 1) // most)] for count in counts)


def _format_ordinal(number: int) -> str:
    end = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{end}"


def _build_table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)


#: Most lines of a value; `show --value` prints all.
MAX_LINES: Final = 200


def print_letter(
    console: Console, letter: LetterView, others: Sequence[Mapping[str, Any]] | str, stored: bool = True
) -> None:
    """Print everything that is known about a letter.

    Parameters:
        others: the fates of the deliveries of its record, as `bridge find` lists them; or why they are unknown.
        stored: whether it is in the database: a letter of a topic has no id and no status.
    """
    _print_head(console, letter, stored)
    _print_value(console, letter)
    _print_original(console, letter)
    _print_traceback(console, letter)
    print_line(console, "what happened (UTC)", "bold")
    for event in build_timeline(letter):
        print_line(console, f"  {_format_second(event.at)}  {event.said}", "red" if event.bad else None)
    _print_others(console, letter, others)
    if stored:
        print_line(console, "what to do", "bold")
        for command in list_next_commands(letter):
            print_line(console, f"  {command}")


def _print_head(console: Console, letter: LetterView, stored: bool) -> None:
    it = letter.listed
    title = f"letter {it.id}: {it.name}" if stored else f"{letter.where}: {it.name}"
    print_line(console, title, "bold")
    if stored:
        print_line(
            console, f"  {it.status} since {_format_second(letter.status_at)}, in group {it.group}", COLOURS[it.status]
        )
    for name, said in _list_facts(letter):
        print_line(console, f"  {name:<9} {said}")


def _list_facts(letter: LetterView) -> Iterator[tuple[str, str]]:
    it = letter.listed
    said = f": {it.error_message}" if it.error_message else ""
    yield "error", f"{it.error_class}{said}" if it.error_class else it.error_message or "unknown"
    yield "why", f"{it.reason or 'no reason given'}; attempts: {letter.attempts if any(letter.attempts) else it.runs}"
    if it.place:
        yield "where", it.place
    if it.version:
        yield "version", it.version
    if it.origin != "bridge":
        yield "written", f"by {it.origin}, for {it.consumer_group or 'an unknown group'}"
    if it.failures > 1:
        yield "again", f"it has died {it.failures} times: a replay alone does not fix it"
    yield "stored at", letter.where + (f", {it.occurrences} times" if it.occurrences > it.failures else "")
    if letter.trace_id:
        yield "trace", letter.trace_id
    if it.key is not None:
        yield "key", cut(format_bytes(it.key) or EMPTY_KEY, 200)
    for name, value in letter.headers:
        yield "header", f"{name} = {'(none)' if value is None else cut(format_bytes(value) or '', 200)}"


def _print_value(console: Console, letter: LetterView) -> None:
    if not letter.kept:
        size = letter.listed.value_size
        print_line(
            console,
            f"value, {size:,} bytes: too large for the database, and Kafka has dropped it or does not answer",
            "bold",
        )
        return
    view = view_payload(letter.value, at=0)
    length = "" if letter.in_kafka is None else f", {len(letter.in_kafka):,} bytes"
    kind = letter.schema if letter.encoded is not None else ", ".join(filter(None, (view.kind, letter.schema)))
    print_line(console, f"value{length}, {kind}", "bold")
    lines = list_payload_lines(view)
    for line in lines[:MAX_LINES]:
        print_line(console, f"  {line}")
    if len(lines) > MAX_LINES or view.next is not None or view.unread:
        print_line(console, "  … there is more: --value gives all of it")


def list_payload_lines(view: PayloadView) -> list[str]:
    """Return the lines of a part of a value: its text, or for each offset sixteen bytes and their ASCII (pure)."""
    lines = [*view.lines, *(f"{at:08x}  {data:47}  {text}" for at, data, text in view.dump)]
    return lines[:-1] if lines and not lines[-1] else lines


def _print_original(console: Console, letter: LetterView) -> None:
    """Print how the value differs from the one that failed first, if it was edited."""
    original = next((failure for failure in letter.history if failure.mended), None)
    if original is None:
        return
    print_line(console, "changes since the value that failed first", "bold")
    if not (original.kept and letter.kept):
        print_line(console, f"  that value is too large for the database; its record is {original.where}")
        return
    for line in diff_values(original.value, letter.value).split("\n")[2:]:
        print_line(console, f"  {line}")


def _print_traceback(console: Console, letter: LetterView) -> None:
    if not letter.traceback:
        return
    print_line(console, "traceback (your code is marked with >)", "bold")
    mine = False
    for line in letter.traceback.splitlines():
        # Below a frame stands its line of code.
        mine = is_user_frame(line, letter.listed.handler) or (mine and line.startswith("    "))
        print_line(console, f"{'>' if mine else ' '} {line}", None if mine else "dim")


def _print_others(console: Console, letter: LetterView, others: Sequence[Mapping[str, Any]] | str) -> None:
    print_line(console, "the deliveries of its record, in the ledger", "bold")
    if isinstance(others, str):
        print_line(console, f"  {others}")
        return
    for each in others:
        this = " (this one)" if each["handler"] == letter.listed.handler else ""
        where = f": {each['where']}" if each["where"] else ""
        print_line(console, f"  {each['handler']}: {each['fate']}{where}{this}")


def _format_second(at: int) -> str:
    """Return a time to the second, in UTC."""
    return str(format_moment(at))[:19].replace("T", " ")


def list_next_commands(letter: LetterView) -> list[str]:
    """Return the commands that fit the letter's status, ready to paste."""
    it = letter.listed
    mine = f"bridge deadletters list --group {it.group}"
    match it.status:
        case LetterStatus.OPEN if letter.is_of_nowhere:
            found = [f"bridge deadletters replay {it.id} --to-topic TOPIC", f"bridge deadletters archive {it.id}"]
            return [*found, f'bridge deadletters discard {it.id} --why "…"', mine]
        case LetterStatus.OPEN:
            found = [f"bridge deadletters replay {it.id} --wait", f"bridge deadletters edit {it.id}"]
            found.append(f'bridge deadletters discard {it.id} --why "…"')
            found.append(f"bridge deadletters show {it.id} --pytest")
            return [*found, mine, f"bridge deadletters fixed {it.group} VERSION"]
        case LetterStatus.REPLAYING if letter.is_unknown:
            place = f"bridge find {it.topic}-{it.partition}-{it.offset}"
            found = [f'bridge deadletters {each} {it.id} --why "…"' for each in ("resolve", "reopen")]
            return [place, *found, f"bridge deadletters plans show {it.plan}"]
        case LetterStatus.REPLAYING:
            return [f"bridge deadletters plans show {it.plan}", f"bridge find {it.topic}-{it.partition}-{it.offset}"]
        case LetterStatus.DISCARDED | LetterStatus.ARCHIVED if it.origin == "bridge":
            # For a discard by mistake: run it again, whatever its fate in the ledger.
            place = f"{it.topic} --partition {it.partition} --from {it.offset} --to {it.offset + 1}"
            found = [f"bridge redrive {place} --handler {it.handler} --again --wait"]
            if it.status is LetterStatus.ARCHIVED:
                found.append(f'bridge deadletters discard {it.id} --why "…"')
            return [*found, mine]
    return [mine]
