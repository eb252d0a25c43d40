"""`bridge deadletters users` and its commands: who may sign in to the console, and what they may do there."""

import sys
from typing import Annotated, ClassVar

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, print_found
from bridge.cli.deadletters.confirming import can_be_asked
from bridge.cli.deadletters.opening import need_console, opened
from bridge.cli.deadletters.roles import Given
from bridge.cli.deadletters.tokens import tokens
from bridge.cli.defaulting import Defaulting
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import cell, say
from bridge.records.times import iso


class _Users(Defaulting):
    """`bridge deadletters users` alone lists them."""

    default: ClassVar = "list"


users = typer.Typer(cls=_Users, no_args_is_help=False)
users.add_typer(tokens, name="tokens")
NameArgument = Annotated[str, typer.Argument(help="The name that they sign in with.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, its first line.")
]


@users.callback()
def users_group() -> None:
    """List who may sign in to the console, add somebody, change what they may or their password, and remove them.

    A viewer sees; an operator replays, edits, halts and resumes too; an admin all. The audit log keeps every change.

    Example: bridge deadletters users add ann --role operator
    """


@users.command("list")
def users_list(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a user.")] = False,
) -> None:
    """List who may sign in, by name. `list` may be left out.

    Example: bridge deadletters users --json
    """
    from bridge.cli.deadletters.tables import clock

    with opened(context) as desk:
        found = desk.users.all()

    def show() -> None:
        if not found:
            say(console, "no users: the console listens on its own machine alone, and is opened by a one-time link")
            return
        table = Table("name", "role", "added (UTC)", "by", box=SIMPLE_HEAD)
        for each in found:
            table.add_row(cell(each.name), each.role, clock(each.at), cell(each.by))
        console.print(table)

    data = [{"name": each.name, "role": each.role, "at": iso(each.at / 1000), "by": each.by} for each in found]
    print_found(data, as_json, show)


@users.command("add")
def users_add(
    context: typer.Context,
    name: NameArgument,
    role: Annotated[Given, typer.Option("--role", help="Their permissions.")],
    from_stdin: StdinOption = False,
    by: ByOption = "",
) -> None:
    """Add somebody. Their password is asked for, or read from standard input; it is never an argument.

    Example: bridge deadletters users add ann --role operator
    """
    need_console()
    from bridge.deadletters.users.role import Role
    from bridge.web.passwords import hashed

    with opened(context, makes=True) as desk:
        desk.users.add(name, Role[role.name], hashed(name, _password(from_stdin)), by or who())
    say(console, f"{name.strip().lower()} was added, as {role.value}")


@users.command("role")
def users_role(
    context: typer.Context,
    name: NameArgument,
    role: Annotated[Given, typer.Argument(help="Their permissions from now on.")],
    by: ByOption = "",
) -> None:
    """Change what somebody may; they are signed out, and sign in again.

    Example: bridge deadletters users role ann admin
    """
    with opened(context) as desk:
        from bridge.deadletters.users.role import Role

        desk.users.give_role(name, Role[role.name], by or who())
    say(console, f"{name.strip().lower()} is {role.value} from now on, and was signed out")


@users.command("password")
def users_password(
    context: typer.Context, name: NameArgument, from_stdin: StdinOption = False, by: ByOption = ""
) -> None:
    """Change somebody's password; they are signed out everywhere.

    Example: bridge deadletters users password ann
    """
    need_console()
    from bridge.web.passwords import hashed

    with opened(context) as desk:
        desk.users.give_password(name, hashed(name, _password(from_stdin)), by or who())
    say(console, f"{name.strip().lower()} has another password, and was signed out")


@users.command("remove")
def users_remove(context: typer.Context, name: NameArgument, by: ByOption = "") -> None:
    """Remove somebody; they are signed out at once. The audit log keeps their actions.

    Example: bridge deadletters users remove ann
    """
    with opened(context) as desk:
        desk.users.remove(name, by or who())
    say(console, f"{name.strip().lower()} was removed, and was signed out")


def _password(from_stdin: bool) -> str:
    """A new password, from standard input or from who sits there."""
    if from_stdin:
        read = sys.stdin.readline().rstrip("\r\n")
        return read or fail("standard input has no password in its first line: nothing was changed.", FAULTS)
    if not can_be_asked():
        fail("nobody can be asked here, there is no terminal: pass the password with --password-stdin.", NOT_FOUND)
    asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return asked
