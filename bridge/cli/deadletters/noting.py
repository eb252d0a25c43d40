"""`bridge deadletters note`."""

from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, console, fail
from bridge.cli.deadletters.opening import opened
from bridge.cli.options import ByOption, said
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.upkeep.facts import letters


def note(
    context: typer.Context,
    text: Annotated[str, typer.Option("--text", "-m", callback=said, help="The text of the note.")],
    ids: Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)] = None,
    group: Annotated[int | None, typer.Option(help="A group: it stands with each of its letters.")] = None,
    by: ByOption = "",
) -> None:
    """Note something on letters, or on a group, for whoever looks at them next. It is never deleted.

    Example: bridge deadletters note 17 18 -m "the bank has these by hand"
    """
    if bool(ids) == (group is not None):
        fail(
            "name letters, or a group: bridge deadletters note 17 -m …, bridge deadletters note --group 7 -m ….", FAULTS
        )
    with opened(context) as desk:
        if group is not None:
            desk.notes.on_group(group, text, by or who())
        else:
            desk.notes.on_letters(ids or [], text, by or who())
    say(console, f"noted on {f'group {group}' if group is not None else letters(len(set(ids or ())))}")
