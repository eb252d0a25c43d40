"""`bridge deadletters reopen` and `resolve`: letters of which a person knows by now whether their replay ran."""

from collections.abc import Sequence
from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, console, fail
from bridge.cli.deadletters.asking import IdsArgument
from bridge.cli.deadletters.opening import opened
from bridge.cli.options import ByOption, said
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.upkeep.facts import letters

PlanOption = Annotated[int | None, typer.Option(help="All letters of a plan whose end is unknown.")]


def reopen(
    context: typer.Context,
    why: Annotated[str, typer.Option("--why", callback=said, help="For the audit log: why they may run again.")],
    ids: IdsArgument = None,
    plan: PlanOption = None,
    by: ByOption = "",
) -> None:
    """Open letters whose replay has an unknown end. Find out first whether their handlers ran: they run once more.

    Example: bridge deadletters reopen 17 18 --why "the bank has no such payment"
    """
    wanted = _named("reopen", ids, plan)
    with opened(context) as desk:
        found = desk.unknown_ends.reopen(wanted, plan, why, by or who())
    _print(wanted, found, "open again")


def resolve(
    context: typer.Context,
    why: Annotated[str, typer.Option("--why", callback=said, help="For the audit log: how you know that they ran.")],
    ids: IdsArgument = None,
    plan: PlanOption = None,
    by: ByOption = "",
) -> None:
    """Resolve letters whose replay has an unknown end. Find out first that their handlers ran: they do not run again.

    Example: bridge deadletters resolve 17 18 --why "the bank has both payments"
    """
    wanted = _named("resolve", ids, plan)
    with opened(context) as desk:
        found = desk.unknown_ends.resolve(wanted, plan, why, by or who())
    _print(wanted, found, "resolved")


def _named(command: str, ids: Sequence[int] | None, plan: int | None) -> list[int]:
    if bool(ids) == (plan is not None):
        fail(f"name letters, or a plan: bridge deadletters {command} 17 --why …, or --plan 3 --why ….", FAULTS)
    return list(dict.fromkeys(ids or ()))


def _print(wanted: Sequence[int], found: Sequence[int], become: str) -> None:
    say(console, f"{letters(len(found))} {become}")
    if left := [id_ for id_ in wanted if id_ not in found]:
        fail(f"left as they are, since their end is not unknown: {', '.join(map(str, left))}.", FAULTS)
