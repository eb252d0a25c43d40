"""`bridge deadletters users tokens` and its commands: what programs sign in to the console's API with."""

from typing import Annotated, ClassVar

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.answers import console, print_found
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.roles import Given
from bridge.cli.defaulting import Defaulting
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import cell, say
from bridge.records.times import iso


class _Tokens(Defaulting):
    """`bridge deadletters users tokens` alone lists them."""

    default: ClassVar = "list"


tokens = typer.Typer(cls=_Tokens, no_args_is_help=False)


@tokens.callback()
def tokens_group() -> None:
    """List the tokens with which programs use the console's API, make one, and revoke one.

    A token has a role, as users have, and ends by itself. The audit log names its actions `token NAME`, and
    keeps every change made here.

    Example: bridge deadletters users tokens make deploy --role operator
    """


@tokens.command("list")
def tokens_list(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a token.")] = False,
) -> None:
    """List them by name, without their secrets, which are kept nowhere. `list` may be left out.

    Example: bridge deadletters users tokens --json
    """
    from bridge.cli.deadletters.tables import clock

    with opened(context) as desk:
        found = desk.tokens.all()

    def show() -> None:
        if not found:
            say(console, "no tokens: bridge deadletters users tokens make NAME --role viewer")
            return
        table = Table("id", "name", "role", "made (UTC)", "by", "ends (UTC)", "used (UTC)", box=SIMPLE_HEAD)
        for each in found:
            used = "never" if each.used_at is None else clock(each.used_at)
            row = (str(each.id), cell(each.name), each.role, clock(each.at), cell(each.by), clock(each.until), used)
            table.add_row(*row)
        console.print(table)

    times = ("at", "until", "used_at")
    moments = [{name: getattr(each, name) for name in times} for each in found]
    print_found(
        [
            {"id": each.id, "name": each.name, "role": each.role, "by": each.by}
            | {name: None if at is None else iso(at / 1000) for name, at in moment.items()}
            for each, moment in zip(found, moments, strict=True)
        ],
        as_json,
        show,
    )


@tokens.command("make")
def tokens_make(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its purpose: the audit log names it.")],
    role: Annotated[Given, typer.Option("--role", help="Its permissions.")],
    days: Annotated[int, typer.Option("--days", help="For how long, 366 at most.")] = 90,
    by: ByOption = "",
) -> None:
    """Make one, and print its secret, alone, on standard output: it is shown this once.

    Example: bridge deadletters users tokens make deploy --role operator --days 30
    """
    with opened(context, makes=True) as desk:
        from bridge.deadletters.users.role import Role

        made, secret = desk.tokens.make(name, Role[role.name], by or who(), days)
    typer.echo(
        f"token {made.id}, {made.name}, as {made.role} until {iso(made.until / 1000)}: shown this once", err=True
    )
    typer.echo(secret)


@tokens.command("revoke")
def tokens_revoke(
    context: typer.Context,
    id: Annotated[int, typer.Argument(help="Its number, as `list` has it.")],
    by: ByOption = "",
) -> None:
    """Revoke one: it opens nothing from now on. The audit log keeps its actions.

    Example: bridge deadletters users tokens revoke 3
    """
    with opened(context) as desk:
        token = desk.tokens.revoke(id, by or who())
    say(console, f"token {token.id}, {token.name}, was revoked")
