"""The commands edit (send a letter back with another value) and check (values that handlers take)."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.console import Console

from bridge.cli.command_io import FAULTS, console, error_console, fail, print_result
from bridge.cli.command_options import ByOption, PlanJsonOption, PlanOnlyOption, TrailOption, WaitOption
from bridge.cli.deadletters.confirmation import YesOption, confirm_plan, print_reasons, require_terminal
from bridge.cli.deadletters.desk_access import open_desk, report_absent
from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.cli.deadletters.plan_run import run_plan
from bridge.cli.deadletters.replay_commands import print_differences, print_planned
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.inspection.terminal_output import print_line
from bridge.inspection.topic_halt import find_person
from bridge.jobs.group_facts import format_letter_count

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService
    from bridge.deadletters.editing.handler_check import HandlerCheck


def edit(
    context: typer.Context,
    letter: Annotated[int, typer.Argument(help="A letter, by its id.")],
    value: Annotated[str | None, typer.Option(help="The new value, as text (UTF-8).")] = None,
    file: Annotated[str | None, typer.Option(help="The new value, byte for byte; - is the input.")] = None,
    tombstone: Annotated[bool, typer.Option("--tombstone", help="No value.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Send it even if the handler refuses the value.")] = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Send a letter back with another value, which its handler's codec and model must accept. The old value is kept.

    Without a value an editor opens with the current one. Key and headers stay as they are: the key decides the record's
    place in the order, and the headers say which record it was.

    Exits 1 if the handler refuses it, 2 without a terminal and without --yes, 3 with --wait if it died
    again.

    Example: bridge deadletters edit 4711 --file order.json --why "the client sent cents" --wait
    """
    who_by = by or find_person()
    if not plan_only:
        require_terminal(yes)
    with open_desk(context) as desk:
        found = _read_new_value(desk, letter, value, file, tombstone)
        plan = desk.mending.edit(letter, found, who_by, why, force=force)
        if not yes:
            print_differences(desk, plan)
        if plan_only:
            print_planned(plan, as_json)
            return
        if not confirm_plan(yes, plan.what, plan.counts):
            print_line(error_console, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        run_plan(desk, plan, who_by, wait, as_json)


@with_filter_options()
def check(
    context: typer.Context,
    chosen: LetterFilter,
    as_json: Annotated[bool, typer.Option("--json", help="Print {letters, valid, upgraded, invalid, …}.")] = False,
) -> None:
    """Count the letters that their handlers would accept now, with the code that is here: codec, model and `upgrade`.

    No handler runs, and nothing is sent. Exits 3 if a letter would be refused.

    Example: bridge deadletters check --group 7
    """
    with open_desk(context) as desk:
        found = desk.mending.check(chosen)
        print_result(found.to_data(), as_json, lambda: _print_checked(console, found))
        if not found.letters:
            report_absent(desk, chosen)
    raise typer.Exit(3 if found.invalid.count else 0)


def _read_new_value(
    desk: "DeadLetterService", letter: int, value: str | None, file: str | None, tombstone: bool
) -> bytes | None:
    """Return the new value; a text of the command line as UTF-8."""
    if (value is not None) + (file is not None) + tombstone > 1:
        fail("pass only one of --value, --file and --tombstone.", FAULTS)
    if tombstone:
        return None
    if value is not None:
        return value.encode("utf-8", "surrogateescape")
    if file is not None:
        return _read_value_file(file)
    if not sys.stdin.isatty():
        fail("pass the new value: --value, --file or --tombstone.", FAULTS)
    return _edit_in_editor(desk, letter)


def _edit_in_editor(desk: "DeadLetterService", letter: int) -> bytes:
    """Return the value as the user saved it in an editor."""
    before = desk.mending.text(letter)
    after = click.edit(before, extension=".json")
    if after is None or after == before:
        fail("the value was not changed, so nothing was sent.", FAULTS)
    # Editors end a file with a line break; a value has one only if it had one.
    return (after if before.endswith("\n") else after.removesuffix("\n")).encode()


def _read_value_file(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        fail(f"{path!r} cannot be read: {error.strerror}.", FAULTS)


def _print_checked(to: Console, found: "HandlerCheck") -> None:
    print_line(to, f"{found.valid:,} of {format_letter_count(found.letters)} would be accepted as they are")
    if found.upgraded:
        print_line(to, f"{found.upgraded:,} would be accepted after their handler's upgrade")
    for reasons, words in ((found.invalid, "would be refused"), (found.unknown, "cannot be checked here")):
        if reasons.count:
            print_line(to, f"{reasons.count:,} {words}:", "yellow")
            print_reasons(to, reasons.to_data())
