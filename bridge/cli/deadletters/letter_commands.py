"""The commands list, groups, stats, show, note, fixed and simulate of `bridge deadletters`."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from celery import Celery

from bridge.cli.command_io import (
    FAULTS,
    console,
    error_console,
    fail,
    fail_unavailable,
    load_app,
    print_result,
)
from bridge.cli.command_options import ByOption, ListJsonOption, require_why
from bridge.cli.deadletters import letter_printout
from bridge.cli.deadletters.desk_access import open_desk, report_absent, report_unrecorded
from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.cli.deadletters.letter_printout import print_groups, print_letter
from bridge.deadletters.inspection.topic_letters import LAST, fetch_letter_value, find_topic_letters, read_topic_letters
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.deadletters.model.letter_view import LetterLine, LetterView
from bridge.deadletters.model.value_match import describe_unread
from bridge.errors import FilterFault, KafkaUnavailable, LedgerUnavailable, NoSuchLetter
from bridge.handler_routes import Routes
from bridge.inspection.record_search import find_sibling_deliveries, parse_coordinates
from bridge.inspection.terminal_output import print_line
from bridge.jobs.group_facts import format_letter_count
from bridge.settings import Settings

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService
    from bridge.deadletters.inspection.group_details import GroupCause

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.command_io import show_progress
from bridge.cli.deadletters.filter_options import complete_handlers
from bridge.formats.group_decision import format_options
from bridge.inspection.terminal_output import make_cell

if TYPE_CHECKING:
    from bridge.deadletters.inspection.policy_trial import PolicyTrial, SimulationResult


#: Letters in the table unless --limit says otherwise.
SHOWN_LETTERS: Final = 50

LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="Most letters; 0: all.", show_default=f"{SHOWN_LETTERS}, and all as JSON"),
]


@with_filter_options()
def list_letters(
    context: typer.Context,
    chosen: LetterFilter,
    limit: LimitOption = None,
    from_topic: Annotated[bool, typer.Option("--from-topic", help="From Kafka, without a database.")] = False,
    topics: Annotated[list[str] | None, typer.Option(help="With --from-topic: other dead-letter topics.")] = None,
    last: Annotated[int, typer.Option(min=1, help="With --from-topic: records of a partition, the latest.")] = LAST,
    as_json: ListJsonOption = False,
) -> None:
    """List dead letters, newest first.

    With --from-topic no database is needed, and the letters have neither ids nor statuses.

    Example: bridge deadletters list --handler orders.handlers.charge --since 2h --status open
    """
    if from_topic:
        list_topic_letters(context, chosen, limit, topics or (), last, as_json)
        return
    unread: list[int] = []
    with open_desk(context) as desk:
        found = desk.letters.each(chosen, unread.append)
        if as_json:
            print_json_list(each.to_data() for each in islice(found, limit or None))
        else:
            _print_letters(desk, chosen, found, SHOWN_LETTERS if limit is None else limit)
        if unread:
            print_line(error_console, describe_unread(sum(unread)), "yellow")
        report_absent(desk, chosen)
        report_unrecorded(desk)


def list_topic_letters(
    context: typer.Context, chosen: LetterFilter, limit: int | None, topics: Sequence[str], last: int, as_json: bool
) -> None:
    """Print the letters of dead-letter topics; on stderr, what was not read."""
    _, settings, routes = load_app(context.obj)
    most = (None if as_json else SHOWN_LETTERS) if limit is None else limit or None
    try:
        looked = find_topic_letters(settings, routes, chosen, last, most, topics)
    except FilterFault as error:
        fail(str(error), FAULTS)
    except KafkaUnavailable as error:
        fail_unavailable(error)
    if as_json:
        print_json_list(letter.to_data() | dict.fromkeys(("id", "status", "group")) for letter in looked.letters)
    else:
        letter_printout.print_letters(console, looked.letters, standing=False)
        if not looked.letters:
            print_line(console, "no dead letter matches")
    for topic in looked.missing:
        print(f"there is no topic {topic}.", file=sys.stderr)
    for (topic, partition), first in looked.looked_from.items():
        print(f"{topic}-{partition} was looked through from offset {first} on (--last).", file=sys.stderr)


def _print_letters(desk: "DeadLetterService", chosen: LetterFilter, letters: Iterable[LetterLine], limit: int) -> None:
    found = list(islice(letters, limit or None))
    letter_printout.print_letters(console, found)
    if not found:
        print_line(console, "no dead letter matches")
    elif len(found) == limit:
        print_line(
            console,
            f"{len(found):,} of {desk.letters.count(chosen)}; all: --limit 0; in groups: bridge deadletters groups",
        )


@with_filter_options()
def list_groups(context: typer.Context, chosen: LetterFilter, as_json: ListJsonOption = False) -> None:
    """List failure groups: dead letters of one handler, exception and place in the code; the most urgent first.

    It takes the options that groups have: --handler, --topic, --exception, --reason, --version, --status, --origin,
    --consumer-group, --group, --cause and --since. With --group the causes of each group follow: each may be replayed,
    or discarded, alone (--group 7 --cause 1f0c…).

    Example: bridge deadletters groups --status open
    """
    with open_desk(context) as desk:
        found = desk.groups.all(chosen)
        causes = desk.causes.read_causes([each.id for each in found]) if chosen.groups else {}
        data = [each.to_data() | _build_causes_data(causes.get(each.id)) for each in found]
        print_result(data, as_json, lambda: letter_printout.print_groups(console, found, causes))
        if not found and not as_json:
            print_line(console, "no dead letter matches")
            report_absent(desk, chosen)
        report_unrecorded(desk)


def _build_causes_data(causes: Sequence["GroupCause"] | None) -> dict[str, Any]:
    return {} if causes is None else {"causes": [cause.to_data() for cause in causes]}


def show_stats(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Count all dead letters: by handler, reason and status, how fast they come and how soon they are resolved.

    Example: bridge deadletters stats --json
    """
    with open_desk(context) as desk:
        found = desk.totals.stats()
        print_result(found.to_data(), as_json, lambda: letter_printout.print_stats(console, found))
        report_absent(desk, ALL_LETTERS)
        report_unrecorded(desk)


def print_json_list(rows: Iterable[dict[str, Any]]) -> None:
    """Write a JSON list row by row, an object a line: there may be a million."""
    before = "["
    for row in rows:
        sys.stdout.write(f"{before}\n{json.dumps(row)}")
        before = ","
    print("[]" if before == "[" else "\n]")


def show(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(help="An id, or orders-3-1234, or orders-3-1234:HANDLER.")],
    value: Annotated[bool, typer.Option("--value", help="Print the value alone, byte for byte.")] = False,
    from_topic: Annotated[bool, typer.Option("--from-topic", help="From Kafka, without a database.")] = False,
    last: Annotated[int, typer.Option(min=1, help="With --from-topic: records of a partition, the latest.")] = LAST,
    as_pytest: Annotated[bool, typer.Option("--pytest", help="Print a test that fails until it is fixed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show everything that is known about one letter: value, headers, traceback, timeline, and the next commands.

    With --from-topic it can also be named by its own offset: orders.dlq-3-17.

    With --pytest it prints a test instead. The handler runs in a sandbox, which connects to nothing and writes no file,
    to cut the value to what fails in the same way. Masked fields (DEADLETTERS_MASK) are replaced.

    Example: bridge deadletters show orders-3-1234
    """
    if as_pytest:
        if from_topic or value or as_json:
            fail("--pytest goes with none of --from-topic, --value and --json.", FAULTS)
        with open_desk(context) as desk:
            _print_test(desk, _read_with_value(desk, _read_from_database(desk, letter)))
    elif from_topic:
        app, settings, routes = load_app(context.obj)
        try:
            found = _read_from_topic(settings, letter, last)
        except KafkaUnavailable as error:
            fail_unavailable(error)
        from bridge.deadletters.model.payload_codec import PayloadCodec

        found = PayloadCodec.from_options(settings.registry).read_letter(found)
        _print_shown(app, settings, routes, found, value, as_json, stored=False)
    else:
        with open_desk(context) as desk:
            found = _read_with_value(desk, _read_from_database(desk, letter))
            found = replace(found, trail=(*found.trail, *desk.notes.of_group(found.listed.group)))
            _print_shown(desk.app, desk.settings, desk.routes, found, value, as_json)


def _print_test(desk: "DeadLetterService", letter: LetterView) -> None:
    """Print the test of a letter; on stderr, whether its failure was reproduced."""
    from bridge.deadletters.editing.system_call_filter import is_sealed_by_kernel
    from bridge.deadletters.masking.letter_mask import LetterMasks
    from bridge.deadletters.masking.letter_test import make_letter_test
    from bridge.settings.masked_fields import read_mask_rules

    masks = LetterMasks(read_mask_rules(desk.settings.environment.DEADLETTERS_MASK))
    made = make_letter_test(desk.app, letter, masks)
    sys.stdout.write(made.text)
    print(made.summary, file=sys.stderr)
    if not is_sealed_by_kernel():
        print(
            "this system's kernel refuses nothing: C libraries of the handler could connect or write.", file=sys.stderr
        )


def _read_from_database(desk: "DeadLetterService", named: str) -> LetterView:
    if named.isdecimal() and len(named) < 20:
        return desk.letters.one(int(named))
    found = [each.id for each in desk.letters.at(*_parse_place(named))]
    if not found:
        raise NoSuchLetter(f"there is no dead letter of {named}: `bridge find` says where its deliveries stand.")
    _require_one(named, map(str, found))
    return desk.letters.one(found[0])


def _read_from_topic(settings: Settings, named: str, last: int) -> LetterView:
    found = read_topic_letters(settings, *_parse_place(named), last)
    if not found:
        fail(f"none of the latest {last:,} records of a partition is {named}'s: look further back with --last.", FAULTS)
    _require_one(named, (each.listed.name for each in found))
    return found[0]


def _require_one(named: str, letters: Iterable[str]) -> None:
    if len(names := list(letters)) > 1:
        fail(f"{named} has {len(names)} dead letters, name one of them: {', '.join(names)}.", FAULTS)


def _parse_place(named: str) -> tuple[str, int, int, str | None]:
    record, _, handler = named.partition(":")
    if (place := parse_coordinates(record)) is None:
        fail(f"{named[:100]!r} is neither an id nor a record (orders-3-1234, orders-3-1234:HANDLER).", FAULTS)
    return *place, handler or None


def _read_with_value(desk: "DeadLetterService", letter: LetterView) -> LetterView:
    """Return a letter with its value, read from Kafka if it is too large for the database."""
    try:
        return desk.database.payloads.read_letter(fetch_letter_value(desk.settings, letter))
    except KafkaUnavailable as error:
        print(error, file=sys.stderr)
        return letter


def _print_shown(
    app: Celery, settings: Settings, routes: Routes, letter: LetterView, value: bool, as_json: bool, stored: bool = True
) -> None:
    if value:
        if not letter.kept:
            fail("its value is too large for the database, and Kafka does not have it any more.", FAULTS)
        sys.stdout.buffer.write(letter.in_kafka or b"")
        return
    it = letter.listed
    others = find_sibling_deliveries(app, settings, routes, it.origin, it.topic, it.partition, it.offset)
    data = letter.to_data() | {"deliveries": None if isinstance(others, str) else list(others)}
    if not stored:
        data |= dict.fromkeys(("id", "status", "status_at", "group", "recorded_at"))
    print_result(data, as_json, lambda: print_letter(console, letter, others, stored))


def note(
    context: typer.Context,
    text: Annotated[str, typer.Option("--text", "-m", callback=require_why, help="The text of the note.")],
    ids: Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)] = None,
    group: Annotated[int | None, typer.Option(help="A group: the note is shown with each of its letters.")] = None,
    by: ByOption = "",
) -> None:
    """Add a note to letters, or to a group. It is shown with them and never deleted.

    Example: bridge deadletters note 17 18 -m "the bank has these by hand"
    """
    if bool(ids) == (group is not None):
        fail(
            "name letters, or a group: bridge deadletters note 17 -m …, bridge deadletters note --group 7 -m ….", FAULTS
        )
    with open_desk(context) as desk:
        if group is not None:
            desk.notes.on_group(group, text, by)
        else:
            desk.notes.on_letters(ids or [], text, by)
    print_line(
        console, f"noted on {f'group {group}' if group is not None else format_letter_count(len(set(ids or ())))}"
    )


def mark_fixed(
    context: typer.Context,
    group: Annotated[int, typer.Argument(help="A group, by its id.")],
    version: Annotated[str | None, typer.Argument(help="The version that has the fix.", show_default=False)] = None,
    cause: Annotated[str | None, typer.Option("--cause", help="This cause of the group alone, by its id.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the mark: it is not fixed.")] = False,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the group as it is now, as JSON.")] = False,
) -> None:
    """Mark a group, or a cause of it, as fixed in a version: its letters are replayed once all workers report that.

    A canary goes first. A failure in that version removes the mark: a regression. `record` must run.

    Example: bridge deadletters fixed 7 1.4.2 --cause 1f0c9a3b2c4d
    """
    if (version is None) != undo:
        fail("name the version in which it is fixed, or pass --undo.", FAULTS)
    with open_desk(context) as desk:
        if version is None:
            found = desk.groups.not_fixed(group, by, cause=cause)
        else:
            found = desk.groups.fixed(group, version, by, cause=cause)
        if version is not None and (why := _describe_wait(desk, found.handler, version)):
            print_line(error_console, why, "yellow")
    print_result(found.to_data(), as_json, lambda: print_groups(console, [found], {}))


def _describe_wait(desk: "DeadLetterService", handler: str, version: str) -> str:
    """Return why letters do not go back by themselves yet; empty if nothing is in the way."""
    from bridge.deadletters.replay.fixed_group_replay import explain_fix_wait, read_living_workers

    try:
        return explain_fix_wait(handler, version, read_living_workers(desk.settings))
    except LedgerUnavailable as error:
        return f"the versions of the workers are unknown: {error}"


@with_filter_options("ids", "handler")
def simulate(
    context: typer.Context,
    chosen: LetterFilter,
    handler: Annotated[str, typer.Argument(help="The handler, by its full name.", autocompletion=complete_handlers)],
    options: Annotated[list[str] | None, typer.Argument(help="option=value, as for `bridge policy set`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Simulate a changed retry policy on a handler's dead letters: their ends, and the number of attempts.

    Each attempt is assumed to fail with the error of the last one. The options override the policy in force: that of
    the code here with the changes of `bridge policy set`. Nothing is changed.

    Example: bridge deadletters simulate orders.handlers.charge max_retries=20 dead_letter_for=CardDeclined --since 7d
    """
    with open_desk(context) as desk, show_progress("judged") as heard:
        found = desk.simulations.run(handler, options or [], chosen, lambda done: heard(format_letter_count(done)))
    print_result(found.to_data(), as_json, lambda: _print_simulation(handler, options or [], found))


def _print_simulation(handler: str, options: list[str], found: "PolicyTrial") -> None:
    from bridge.deadletters.inspection.policy_trial import describe_trial

    result = found.result
    print_line(
        console,
        f"{format_letter_count(result.letters)} of {handler}, if each attempt had failed like the last one",
    )
    if result.letters:
        console.print(_build_simulation_table(" ".join(options) or "by the policy in force", result))
    if found.in_force:
        print_line(
            console, f"The policy in force is the code's with {format_options(found.in_force)} (bridge policy show)."
        )
    if found.unknown:
        print_line(console, f"The changes of `bridge policy set` are unknown: {found.unknown}")
    for line in describe_trial(found):
        print_line(console, line)


def _build_simulation_table(tried: str, result: "SimulationResult") -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("as it was", justify="right", no_wrap=True)
    table.add_column(make_cell(tried), justify="right", overflow="fold")
    for end in result.ends:
        table.add_row(end, f"{result.before[end]:,}", f"{result.after[end]:,}")
    table.add_row("attempts in all", f"{result.attempts_before:,}", f"{result.attempts_after:,}")
    return table
