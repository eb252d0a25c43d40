"""The commands of `bridge deadletters` that send letters back or end them, and check their values."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from bridge.cli.command_io import BAD, FAULTS, OK, console, error_console, fail, print_result, require_terminal
from bridge.cli.command_options import (
    ByOption,
    CanaryOption,
    PlanJsonOption,
    PlanOnlyOption,
    TrailOption,
    WaitOption,
    YesOption,
    require_why,
)
from bridge.cli.deadletters.desk_access import open_desk, refuse_absent, report_absent
from bridge.cli.deadletters.filter_options import IdsArgument, with_filter_options
from bridge.cli.deadletters.plan_run import carry_out_plan, print_reasons, report_interruption
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.inspection.terminal_output import print_line
from bridge.jobs.group_facts import format_letter_count

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService
    from bridge.deadletters.editing.handler_check import HandlerCheck

#: Differences that are shown before the user confirms a patch.
SHOWN_DIFFERENCES = 3


@with_filter_options()
def replay(
    context: typer.Context,
    chosen: LetterFilter,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Letters a second at most.")] = None,
    canary: CanaryOption = False,
    all_handlers: Annotated[bool, typer.Option("--all-handlers", help="Also to others at which it has died.")] = False,
    patch: Annotated[str | None, typer.Option("--patch", help="JSON Patch (RFC 6902), or a file of one.")] = None,
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="A copy, to this topic.")] = None,
    to_kafka: Annotated[str | None, typer.Option("--to-kafka", help="With --to-topic: addresses, or a file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also invalid values, and own topics.")] = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Replay open dead letters, each at the handler that failed and at no other.

    A plan freezes the letters first, and its counts are shown; it can be interrupted and resumed. With
    --canary a wave goes only if the last one ended well; otherwise the rest stays untouched.
    Letters of all waves but the last have one attempt: what fails is dead again at once.

    With --patch each goes back with the patched value, if its handler accepts that; letters left out are listed
    with the reason. With --to-topic copies go there instead, and nothing changes here. --to-kafka names another
    Kafka; its user and password are in TARGET_KAFKA_… or in the file.

    Example: bridge deadletters replay --handler orders.handlers.charge --since 2h --canary --wait
    """
    require_terminal(yes or plan_only)
    with open_desk(context) as desk:
        refuse_absent(desk, chosen)
        options = PlanOptions(rate, canary, all_handlers)
        with report_interruption():
            if to_topic is not None:
                plan = _plan_copies(desk, chosen, to_topic, to_kafka, options, by, why, force)
            elif patch is not None:
                plan = _plan_patch(desk, chosen, patch, options, by, why, force)
            else:
                plan = desk.plans.make(PlanKind.REPLAY, chosen, options, by, why)
        if patch is not None and not yes:
            print_differences(desk, plan)
        carry_out_plan(desk, plan, by, plan_only=plan_only, yes=yes, wait=wait, as_json=as_json)


def print_differences(desk: "DeadLetterService", plan: BulkPlan) -> None:
    """Print how the first letters of a plan change."""
    for each in desk.mending.differences(plan.id, SHOWN_DIFFERENCES):
        print_line(error_console, f"letter {each.letter_id}:")
        for line in each.text.splitlines():
            print_line(error_console, f"  {line}")


def _plan_patch(
    desk: "DeadLetterService", chosen: LetterFilter, patch: str, options: PlanOptions, by: str, why: str, force: bool
) -> BulkPlan:
    from bridge.deadletters.editing.json_patch import ValuePatch

    text = patch if patch.lstrip().startswith("[") else _read_patch_file(patch)
    return desk.mending.patch(chosen, ValuePatch.read(text), options, by, why, force=force)


def _plan_copies(
    desk: "DeadLetterService",
    chosen: LetterFilter,
    topic: str,
    kafka: str | None,
    options: PlanOptions,
    by: str,
    why: str,
    force: bool,
) -> BulkPlan:
    from bridge.deadletters.replay.copy_action import CopyTarget

    to = None if kafka is None else CopyTarget.read(kafka)
    return desk.copies.plan(chosen, topic, to, options, by, why, force=force)


def _read_patch_file(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path!r} cannot be read as a patch: {error}.", FAULTS)


PlanOption = Annotated[int | None, typer.Option(help="All letters of a plan whose outcome is unknown.")]


def reopen(
    context: typer.Context,
    why: Annotated[str, typer.Option("--why", callback=require_why, help="For the audit log: why they may run again.")],
    ids: IdsArgument = None,
    plan: PlanOption = None,
    by: ByOption = "",
) -> None:
    """Open letters whose replay has an unknown outcome. Find out first that they did not run: a replay runs them again.

    Example: bridge deadletters reopen 17 18 --why "the bank has no such payment"
    """
    wanted = _require_ids("reopen", ids, plan)
    with open_desk(context) as desk:
        found = desk.unknown_ends.reopen(wanted, plan, why, by)
    _print_ended(wanted, found, "open again")


def resolve(
    context: typer.Context,
    why: Annotated[
        str, typer.Option("--why", callback=require_why, help="For the audit log: how you know that they ran.")
    ],
    ids: IdsArgument = None,
    plan: PlanOption = None,
    by: ByOption = "",
) -> None:
    """Resolve letters whose replay has an unknown outcome. Find out first that they ran: they do not run again.

    Example: bridge deadletters resolve 17 18 --why "the bank has both payments"
    """
    wanted = _require_ids("resolve", ids, plan)
    with open_desk(context) as desk:
        found = desk.unknown_ends.resolve(wanted, plan, why, by)
    _print_ended(wanted, found, "resolved")


def _require_ids(command: str, ids: Sequence[int] | None, plan: int | None) -> list[int]:
    if bool(ids) == (plan is not None):
        fail(f"name letters, or a plan: bridge deadletters {command} 17 --why …, or --plan 3 --why ….", FAULTS)
    return list(dict.fromkeys(ids or ()))


def _print_ended(wanted: Sequence[int], found: Sequence[int], become: str) -> None:
    print_line(console, f"{format_letter_count(len(found))} {become}")
    if left := [id_ for id_ in wanted if id_ not in found]:
        fail(f"left as they are, since their outcome is not unknown: {', '.join(map(str, left))}.", FAULTS)


EveryOption = Annotated[bool, typer.Option("--all", help="Every letter, where no filter is given.")]


@with_filter_options()
def discard(
    context: typer.Context,
    chosen: LetterFilter,
    why: Annotated[str, typer.Option("--why", callback=require_why, help="The reason, for the audit log.")],
    every: EveryOption = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Discard dead letters, with a reason: the ledger notes their deliveries as discarded.

    Archived letters are discarded too where their ids, or --status archived, name them.

    Example: bridge deadletters discard --handler orders.handlers.charge --key test-7 --why "a load test's"
    """
    _end_letters(context, PlanKind.DISCARD, chosen, why, every, yes, by, as_json)


@with_filter_options()
def archive(
    context: typer.Context,
    chosen: LetterFilter,
    why: TrailOption = "",
    every: EveryOption = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Archive dead letters: no replay takes them. `show` prints the command that sends one back all the same.

    Example: bridge deadletters archive --until 2026-01-01 --yes
    """
    _end_letters(context, PlanKind.ARCHIVE, chosen, why, every, yes, by, as_json)


def _end_letters(
    context: typer.Context,
    what: PlanKind,
    chosen: LetterFilter,
    why: str,
    every: bool,
    yes: bool,
    by: str,
    as_json: bool,
) -> None:
    if chosen == ALL_LETTERS and not every:
        fail(f"name the letters to {what} by a filter, or pass --all.", FAULTS)
    require_terminal(yes)
    with open_desk(context) as desk:
        refuse_absent(desk, chosen)
        with report_interruption():
            plan = desk.plans.make(what, chosen, PlanOptions(), by, why)
        carry_out_plan(desk, plan, by, yes=yes, wait=True, as_json=as_json)


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

    Example: bridge deadletters edit 4711 --file order.json --why "the client sent cents" --wait
    """
    require_terminal(yes or plan_only)
    with open_desk(context) as desk:
        found = _read_new_value(desk, letter, value, file, tombstone)
        plan = desk.mending.edit(letter, found, by, why, force=force)
        if not yes:
            print_differences(desk, plan)
        carry_out_plan(desk, plan, by, plan_only=plan_only, yes=yes, wait=wait, as_json=as_json)


@with_filter_options()
def check(
    context: typer.Context,
    chosen: LetterFilter,
    as_json: Annotated[bool, typer.Option("--json", help="Print {letters, valid, upgraded, invalid, …}.")] = False,
) -> None:
    """Count the letters that their handlers would accept now, with the code that is here: codec, model and `upgrade`.

    No handler runs, and nothing is sent.

    Example: bridge deadletters check --group 7
    """
    with open_desk(context) as desk:
        found = desk.mending.check(chosen)
        print_result(found.to_data(), as_json, lambda: _print_checked(found))
        if not found.letters:
            report_absent(desk, chosen)
    raise typer.Exit(BAD if found.invalid.count else OK)


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


def _print_checked(found: "HandlerCheck") -> None:
    print_line(console, f"{found.valid:,} of {format_letter_count(found.letters)} would be accepted as they are")
    if found.upgraded:
        print_line(console, f"{found.upgraded:,} would be accepted after their handler's upgrade")
    for reasons, words in ((found.invalid, "would be refused"), (found.unknown, "cannot be checked here")):
        if reasons.count:
            print_line(console, f"{reasons.count:,} {words}:", "yellow")
            print_reasons(console, reasons.to_data())
