"""`bridge deadletters fixed`."""

from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.answers import FAULTS, console, fail, print_found
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.progress import errors
from bridge.cli.deadletters.tables import groups as print_groups
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.errors import LedgerUnavailable

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk


def fixed(
    context: typer.Context,
    group: Annotated[int, typer.Argument(help="A group, by its id.")],
    version: Annotated[str | None, typer.Argument(help="Of the handlers' code.", show_default=False)] = None,
    cause: Annotated[str | None, typer.Option("--cause", help="This cause of the group alone, by its id.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="It is not fixed: take that back.")] = False,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the group as it is now, as JSON.")] = False,
) -> None:
    """Say that a group, or a cause of it, is fixed in a version: its letters are replayed when workers report that.

    A canary goes first. The mark is taken back, as a regression, if it fails in that version. `record` must run.

    Example: bridge deadletters fixed 7 1.4.2 --cause 1f0c9a3b2c4d
    """
    if (version is None) != undo:
        fail("say the version in which it is fixed, or --undo.", FAULTS)
    with opened(context) as desk:
        who_by = by or who()
        if version is None:
            found = desk.groups.not_fixed(group, who_by, cause=cause)
        else:
            found = desk.groups.fixed(group, version, who_by, cause=cause)
        if version is not None and (why := _waits_for(desk, found.handler, version)):
            say(errors, why, "yellow")
    print_found(found.to_data(), as_json, lambda: print_groups(console, [found], {}))


def _waits_for(desk: "Desk", handler: str, version: str) -> str:
    """What is still to come before letters go back by themselves: nobody else would say that it never does."""
    from bridge.deadletters.upkeep import fixing, versions

    try:
        return versions.waits_for(handler, version, fixing.workers(desk.settings))
    except LedgerUnavailable as error:
        return f"which versions workers have is not known: {error}"
