"""`bridge deadletters plans` and its commands: what was asked for in bulk, gone on with and stopped."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bridge.cli.answers import console, print_found
from bridge.cli.deadletters.carrying import carry_out, code, print_plan
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody, print_counts
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.plan_options import TrailOption, WaitOption
from bridge.cli.deadletters.tables import clock
from bridge.cli.defaulting import Defaulting
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import cell, say
from bridge.deadletters.plan.plan import Plan

if TYPE_CHECKING:
    from bridge.deadletters.questions.progress import LeftOut


class _Plans(Defaulting):
    """`bridge deadletters plans` alone lists them."""

    default: ClassVar = "list"


plans = typer.Typer(cls=_Plans, no_args_is_help=False)
PlanArgument = Annotated[int, typer.Argument(help="A plan, by its number.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")]


@plans.callback()
def plans_group() -> None:
    """List plans (what was asked for in bulk), go on with one that was stopped or left, and stop one.

    Example: bridge deadletters plans --json
    """


@plans.command("list")
def plans_list(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Most plans.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a plan.")] = False,
) -> None:
    """List the latest plans, the newest first, with how what they sent has ended. `list` may be left out.

    Example: bridge deadletters plans --limit 5
    """
    with opened(context) as desk:
        found = desk.plans.latest(limit)
    print_found([each.to_data() for each in found], as_json, lambda: _print(console, found))


@plans.command("show")
def plans_show(context: typer.Context, plan: PlanArgument, as_json: JsonOption = False) -> None:
    """Show a plan: what it is about, how far it is, and how what it sent has ended.

    Exits 3 if it was stopped, or something of it has ended badly.

    Example: bridge deadletters plans show 7
    """
    with opened(context) as desk:
        found = desk.plans.one(plan)
        left_out = desk.progress.left_out(found)
    data = {**found.to_data(), "left_out": [each._asdict() for each in left_out]}
    print_found(data, as_json, lambda: _print_one(console, found, left_out))
    raise typer.Exit(code(found, found.is_over))


@plans.command("apply")
def plans_apply(
    context: typer.Context,
    plan: PlanArgument,
    wait: WaitOption = False,
    background: Annotated[bool, typer.Option("--background", help="Leave it to `record`, and return.")] = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: JsonOption = False,
) -> None:
    """Do a plan, or go on with one that was stopped or interrupted: with exactly the letters that it froze.

    Exits 2 if nobody can be asked and --yes is not said, 3 if it stopped, or with --wait if any died again.

    Example: bridge deadletters plans apply 7 --wait
    """
    need_somebody(yes)
    with opened(context) as desk:
        found = desk.plans.one(plan)
        if not confirmed(yes, found.what, found.counts):
            raise typer.Exit(1)
        if background:
            found = desk.plans.approve(plan, by or who())
            print_found(found.to_data(), as_json, lambda: print_plan(console, found))
            return
        carry_out(desk, found, by or who(), wait, as_json)


@plans.command("stop")
def plans_stop(
    context: typer.Context,
    plan: PlanArgument,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: JsonOption = False,
) -> None:
    """Stop a plan within a second. Letters that were sent are handled; all others stay as they are.

    Example: bridge deadletters plans stop 7 --why "the bank is down again"
    """
    with opened(context) as desk:
        found = desk.plans.stop(plan, by or who(), why)
    print_found(found.to_data(), as_json, lambda: print_plan(console, found))


def _print(to: Console, found: list[Plan]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("id", justify="right", no_wrap=True)
    table.add_column("made (UTC)", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("state", overflow="fold")
    for each in found:
        what = f"{each.what} {each.counts.letters:,}\nby {each.by}"
        outcomes = ", ".join(f"{count:,} {state}" for state, count in each.outcomes.items())
        state = [str(each.state), outcomes, each.stopped]
        table.add_row(
            str(each.id),
            clock(each.at),
            "\n".join(map(cell, what.split("\n"))),
            "\n".join(cell(words) for words in state if words),
        )
    to.print(table)
    if not found:
        say(to, "there is no plan yet")


def _print_one(to: Console, plan: Plan, left_out: Sequence["LeftOut"]) -> None:
    why = f": {plan.why}" if plan.why else ""
    say(to, f"plan {plan.id}: {plan.what} {plan.counts.letters:,}, by {plan.by}, {clock(plan.at)} UTC{why}")
    print_counts(to, plan.counts)
    print_plan(to, plan, left_out=left_out)
