"""The commands `bridge deadletters plans`: list, show, apply and stop plans."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bridge.cli.command_io import AGAIN, FAULTS, OK, console, print_result, require_terminal
from bridge.cli.command_options import ByOption, ListGroup, ListJsonOption, TrailOption, WaitOption, YesOption
from bridge.cli.deadletters.desk_access import open_desk
from bridge.cli.deadletters.letter_printout import format_minute
from bridge.cli.deadletters.plan_run import carry_out_plan, confirm_plan, get_plan_exit_code, print_counts, print_plan
from bridge.cli.exit_codes import add_commands
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanState
from bridge.inspection.terminal_output import make_cell, print_line

if TYPE_CHECKING:
    from bridge.deadletters.replay.plan_progress import LeftOutLetters


plans = typer.Typer(cls=ListGroup, no_args_is_help=False)
PlanArgument = Annotated[int, typer.Argument(help="A plan, by its number.")]
PlanAsJsonOption = Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")]


@plans.callback()
def plans_group() -> None:
    """List plans (bulk actions), resume one that was stopped or interrupted, and stop one.

    Example: bridge deadletters plans --json
    """


def plans_list(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Most plans.")] = 50,
    as_json: ListJsonOption = False,
) -> None:
    """List the latest plans, newest first, with the outcomes of their letters. `list` may be left out.

    Example: bridge deadletters plans --limit 5
    """
    with open_desk(context) as desk:
        found = desk.plans.latest(limit)
    print_result([each.to_data() for each in found], as_json, lambda: _print_plans(console, found))


def plans_show(context: typer.Context, plan: PlanArgument, as_json: PlanAsJsonOption = False) -> None:
    """Show a plan: its letters, its progress, and the outcomes.

    Example: bridge deadletters plans show 7
    """
    with open_desk(context) as desk:
        found = desk.plans.one(plan)
        left_out = desk.progress.left_out(found)
    data = {**found.to_data(), "left_out": [each._asdict() for each in left_out]}
    print_result(data, as_json, lambda: _print_plan_details(console, found, left_out))
    raise typer.Exit(get_plan_exit_code(found, found.is_over))


def plans_apply(
    context: typer.Context,
    plan: PlanArgument,
    wait: WaitOption = False,
    background: Annotated[bool, typer.Option("--background", help="Leave it to `record`, and return.")] = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: PlanAsJsonOption = False,
) -> None:
    """Apply a plan, or resume one that was stopped or interrupted, with exactly the letters that it froze.

    A plan of more than DEADLETTERS_APPROVAL_ABOVE deliveries then awaits a second person, who approves it by this
    command or in the console.

    Example: bridge deadletters plans apply 7 --wait
    """
    require_terminal(yes)
    with open_desk(context) as desk:
        found = desk.plans.one(plan)
        if background:
            if not confirm_plan(yes, found):
                raise typer.Exit(FAULTS)
            found = desk.plans.approve(plan, by)
            print_result(found.to_data(), as_json, lambda: print_plan(console, found))
            raise typer.Exit(AGAIN if found.state is PlanState.AWAITING else OK)
        carry_out_plan(desk, found, by, yes=yes, wait=wait, as_json=as_json)


def plans_stop(
    context: typer.Context,
    plan: PlanArgument,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanAsJsonOption = False,
) -> None:
    """Stop a plan within a second, or reject one that awaits a second person.

    Letters that were sent still run; all others stay as they are.

    Example: bridge deadletters plans stop 7 --why "the bank is down again"
    """
    with open_desk(context) as desk:
        found = desk.plans.stop(plan, by, why)
    print_result(found.to_data(), as_json, lambda: print_plan(console, found))


def _print_plans(to: Console, found: list[BulkPlan]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("id", justify="right", no_wrap=True)
    table.add_column("made (UTC)", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("state", overflow="fold")
    for plan in found:
        what = f"{plan.what} {plan.counts.letters:,}\nby {plan.by}"
        outcomes = ", ".join(f"{count:,} {state}" for state, count in plan.outcomes.items())
        state = [str(plan.state), outcomes, plan.stopped]
        table.add_row(
            str(plan.id),
            format_minute(plan.at),
            "\n".join(map(make_cell, what.split("\n"))),
            "\n".join(make_cell(words) for words in state if words),
        )
    to.print(table)
    if not found:
        print_line(to, "there is no plan yet")


def _print_plan_details(to: Console, plan: BulkPlan, left_out: Sequence["LeftOutLetters"]) -> None:
    why = f": {plan.why}" if plan.why else ""
    print_line(
        to, f"plan {plan.id}: {plan.what} {plan.counts.letters:,}, by {plan.by}, {format_minute(plan.at)} UTC{why}"
    )
    print_counts(to, plan.counts)
    print_plan(to, plan, left_out=left_out)


PLANS_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "list": plans_list,
    "show": plans_show,
    "apply": plans_apply,
    "stop": plans_stop,
}
add_commands(plans, "deadletters plans", PLANS_COMMANDS)
