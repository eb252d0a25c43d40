"""`bridge deadletters discard` and `archive`: what nobody will send back."""

from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, fail
from bridge.cli.deadletters.absent import refuse_absent
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.carrying import being_planned, carry_out
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.plan_options import PlanJsonOption, TrailOption
from bridge.cli.deadletters.progress import errors
from bridge.cli.options import ByOption, said
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.deadletters.plan.plan import Options, What

EveryOption = Annotated[bool, typer.Option("--all", help="Every letter, where no filter is given.")]


@filtered()
def discard(
    context: typer.Context,
    chosen: Filter,
    why: Annotated[str, typer.Option("--why", callback=said, help="The reason, for the audit log.")],
    every: EveryOption = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Give dead letters up, with a reason: the ledger has their deliveries as discarded from then on.

    Example: bridge deadletters discard --handler orders.handlers.charge --key test-7 --why "a load test's"
    """
    _end(context, What.DISCARD, chosen, why, every, yes, by, as_json)


@filtered()
def archive(
    context: typer.Context,
    chosen: Filter,
    why: TrailOption = "",
    every: EveryOption = False,
    yes: YesOption = False,
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Put dead letters aside: no replay takes them. `show` has the command for one that is to go back all the same.

    Example: bridge deadletters archive --until 2026-01-01 --yes
    """
    _end(context, What.ARCHIVE, chosen, why, every, yes, by, as_json)


def _end(
    context: typer.Context, what: What, chosen: Filter, why: str, every: bool, yes: bool, by: str, as_json: bool
) -> None:
    if chosen == EVERYTHING and not every:
        fail(f"say which letters to {what}, or --all.", FAULTS)
    need_somebody(yes)
    who_by = by or who()
    with opened(context) as desk:
        refuse_absent(desk, chosen)
        with being_planned():
            plan = desk.plans.make(what, chosen, Options(), who_by, why)
        if not confirmed(yes, plan.what, plan.counts):
            say(errors, "nothing was changed.")
            raise typer.Exit(FAULTS)
        carry_out(desk, plan, who_by, True, as_json)
