"""The commands replay, reopen, discard and archive of `bridge deadletters`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.command_io import FAULTS, console, error_console, fail, print_result
from bridge.cli.command_options import (
    ByOption,
    CanaryOption,
    PlanJsonOption,
    PlanOnlyOption,
    TrailOption,
    WaitOption,
    require_why,
)
from bridge.cli.deadletters.confirmation import YesOption, confirm_plan, print_counts, require_terminal
from bridge.cli.deadletters.desk_access import open_desk, refuse_absent
from bridge.cli.deadletters.filter_options import IdsArgument, with_filter_options
from bridge.cli.deadletters.plan_run import print_plan, report_interruption, run_plan
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.inspection.terminal_output import print_line
from bridge.inspection.topic_halt import find_person
from bridge.jobs.group_facts import format_letter_count

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService

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

    Exits 2 without a terminal and without --yes, 3 if the canary stopped, or with --wait if a letter died again,
    75 if Kafka or Redis stopped answering or another process applies the plan, 130 after Ctrl-C.

    Example: bridge deadletters replay --handler orders.handlers.charge --since 2h --canary --wait
    """
    who_by = by or find_person()
    if not plan_only:
        require_terminal(yes)
    with open_desk(context) as desk:
        refuse_absent(desk, chosen)
        options = PlanOptions(rate, canary, all_handlers)
        with report_interruption():
            if to_topic is not None:
                plan = _plan_copies(desk, chosen, to_topic, to_kafka, options, who_by, why, force)
            elif patch is not None:
                plan = _plan_patch(desk, chosen, patch, options, who_by, why, force)
            else:
                plan = desk.plans.make(PlanKind.REPLAY, chosen, options, who_by, why)
        if patch is not None and not yes:
            print_differences(desk, plan)
        if plan_only:
            print_planned(plan, as_json)
            return
        if not confirm_plan(yes, plan.what, plan.counts):
            print_line(error_console, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        run_plan(desk, plan, who_by, wait, as_json)


def print_planned(plan: BulkPlan, as_json: bool) -> None:
    """Print a plan that is not applied yet."""

    def tell() -> None:
        print_counts(console, plan.counts)
        print_plan(console, plan)

    found = {"plan": plan.id, "state": str(plan.state), "counts": plan.counts.to_data()}
    print_result(found, as_json, tell)


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
    from bridge.deadletters.replay.letter_copy import CopyTarget

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
    wanted = _named("reopen", ids, plan)
    with open_desk(context) as desk:
        found = desk.unknown_ends.reopen(wanted, plan, why, by or find_person())
    _print(wanted, found, "open again")


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
    wanted = _named("resolve", ids, plan)
    with open_desk(context) as desk:
        found = desk.unknown_ends.resolve(wanted, plan, why, by or find_person())
    _print(wanted, found, "resolved")


def _named(command: str, ids: Sequence[int] | None, plan: int | None) -> list[int]:
    if bool(ids) == (plan is not None):
        fail(f"name letters, or a plan: bridge deadletters {command} 17 --why …, or --plan 3 --why ….", FAULTS)
    return list(dict.fromkeys(ids or ()))


def _print(wanted: Sequence[int], found: Sequence[int], become: str) -> None:
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
    who_by = by or find_person()
    with open_desk(context) as desk:
        refuse_absent(desk, chosen)
        with report_interruption():
            plan = desk.plans.make(what, chosen, PlanOptions(), who_by, why)
        if not confirm_plan(yes, plan.what, plan.counts):
            print_line(error_console, "nothing was changed.")
            raise typer.Exit(FAULTS)
        run_plan(desk, plan, who_by, True, as_json)
