"""`bridge deadletters replay`."""

from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, console, print_found
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.carrying import carry_out, print_plan
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.progress import errors
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.filters import Filter
from bridge.deadletters.plan import Options, What


@filtered()
def replay(
    context: typer.Context,
    chosen: Filter,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Letters a second at most.")] = None,
    canary: Annotated[bool, typer.Option("--canary", help="In waves: 1, 5, 20, 100, the rest.")] = False,
    all_handlers: Annotated[bool, typer.Option("--all-handlers", help="Also to others that are not done.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is known how each has ended.")] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Make the plan, and send nothing yet.")] = False,
    yes: YesOption = False,
    why: Annotated[str, typer.Option("--why", help="For the trail.")] = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print {plan, state, counts, outcomes}.")] = False,
) -> None:
    """Send dead letters that are open back, each to the handler that failed and to no other.

    Which ones is frozen in a plan first, and its counts are shown; it can be interrupted, and gone on with. With
    --canary the next wave goes only if the last ended well, and the rest stays untouched if one did not.

    Exits 2 if nobody can be asked and --yes is not said, 3 if the canary stopped, or with --wait if any died again,
    130 after Ctrl-C.

    Example: bridge deadletters replay --handler orders.handlers.charge --since 2h --canary --wait
    """
    who_by = by or who()
    if not plan_only:
        need_somebody(yes)
    with opened(context) as desk:
        plan = desk.plans.make(What.REPLAY, chosen, Options(rate, canary, all_handlers), who_by, why)
        if plan_only:
            found = {"plan": plan.id, "state": str(plan.state), "counts": plan.counts.to_data()}
            print_found(found, as_json, lambda: print_plan(console, plan))
            return
        if not confirmed(yes, plan.what, plan.counts):
            say(errors, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        carry_out(desk, plan, who_by, wait, as_json)
