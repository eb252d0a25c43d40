"""`bridge deadletters reopen`: letters of which a person knows by now that their replay did not run."""

from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, console, fail
from bridge.cli.deadletters.opening import opened
from bridge.cli.options import ByOption, said
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.upkeep.facts import letters


def reopen(
    context: typer.Context,
    why: Annotated[str, typer.Option("--why", callback=said, help="For the audit log: why they may run again.")],
    ids: Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)] = None,
    plan: Annotated[int | None, typer.Option(help="All letters of a plan whose end is unknown.")] = None,
    by: ByOption = "",
) -> None:
    """Open letters whose replay has an unknown end. Find out first whether their handlers ran: they run once more.

    Example: bridge deadletters reopen 17 18 --why "the bank has no such payment"
    """
    if bool(ids) == (plan is not None):
        fail("name letters, or a plan: bridge deadletters reopen 17 --why …, or --plan 3 --why ….", FAULTS)
    wanted = list(dict.fromkeys(ids or ()))
    with opened(context) as desk:
        found = desk.unknown_ends.reopen(wanted, plan, why, by or who())
    say(console, f"{letters(len(found))} open again")
    if left := [id_ for id_ in wanted if id_ not in found]:
        fail(f"left as they are, since their end is not unknown: {', '.join(map(str, left))}.", FAULTS)
