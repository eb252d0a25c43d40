"""The commands `bridge deadletters users` and `users tokens`: accounts and API tokens."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.command_io import console, print_result, read_secret
from bridge.cli.command_options import ByOption, ListGroup, ListJsonOption, RoleChoice
from bridge.cli.deadletters.desk_access import open_desk, require_console
from bridge.cli.deadletters.letter_printout import format_minute
from bridge.formats.text_forms import format_time
from bridge.inspection.terminal_output import make_cell, print_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.deadletters.model.letter_scope import LetterScope

TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topics", help="Only the letters of these source topics: names with * for any characters."),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option("--consumer-groups", help="Only the letters of these consumer groups, in the same way."),
]


tokens = typer.Typer(cls=ListGroup, no_args_is_help=False)


@tokens.callback()
def tokens_group() -> None:
    """List, create and revoke tokens, with which programs use the console's API.

    A token has a role, as users have, and expires. The audit log names its actions `token NAME`, and
    notes every change made here.

    Example: bridge deadletters users tokens make deploy --role operator
    """


@tokens.command("list")
def tokens_list(context: typer.Context, as_json: ListJsonOption = False) -> None:
    """List tokens by name, without their secrets, which are stored nowhere. `list` may be left out.

    Example: bridge deadletters users tokens --json
    """
    with open_desk(context) as desk:
        found = desk.tokens.all()

    def show() -> None:
        if not found:
            print_line(console, "no tokens: bridge deadletters users tokens make NAME --role viewer")
            return
        table = Table("id", "name", "role", "made (UTC)", "by", "ends (UTC)", "used (UTC)", box=SIMPLE_HEAD)
        for each in found:
            used = "never" if each.used_at is None else format_minute(each.used_at)
            made, until = format_minute(each.at), format_minute(each.until)
            table.add_row(str(each.id), make_cell(each.name), each.role, made, make_cell(each.by), until, used)
        console.print(table)
        _print_scopes((f"token {each.name}", each.scope) for each in found)

    data = [
        {"id": each.id, "name": each.name, "role": each.role, "by": each.by, **_list_patterns(each.scope)}
        | {name: (at := getattr(each, name)) and format_time(at / 1000) for name in ("at", "until", "used_at")}
        for each in found
    ]
    print_result(data, as_json, show)


@tokens.command("make")
def tokens_make(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its purpose: the audit log names it.")],
    role: Annotated[RoleChoice, typer.Option("--role", help="Its permissions.")],
    days: Annotated[int, typer.Option("--days", help="Days until it expires, 366 at most.")] = 90,
    topics: TopicsOption = None,
    groups: GroupsOption = None,
    by: ByOption = "",
) -> None:
    """Create a token, and print its secret, alone, on standard output: it is shown only this time.

    Without --topics and --consumer-groups it sees the letters of all.

    Example: bridge deadletters users tokens make deploy --role operator --days 30 --topics 'payments.*'
    """
    with open_desk(context, makes=True) as desk:
        from bridge.deadletters.accounts.user_account import Role
        from bridge.deadletters.model.letter_scope import LetterScope

        scope = LetterScope.parse(topics or [], groups or [])
        made, secret = desk.tokens.make(name, Role[role.name], by, days, scope)
    typer.echo(
        f"token {made.id}, {made.name}, as {made.role} until {format_time(made.until / 1000)}: shown this once",
        err=True,
    )
    typer.echo(secret)


@tokens.command("revoke")
def tokens_revoke(
    context: typer.Context,
    id: Annotated[int, typer.Argument(help="The token's id, as `list` prints it.")],
    by: ByOption = "",
) -> None:
    """Revoke a token at once. The audit log keeps its actions.

    Example: bridge deadletters users tokens revoke 3
    """
    with open_desk(context) as desk:
        token = desk.tokens.revoke(id, by)
    print_line(console, f"token {token.id}, {token.name}, was revoked")


users = typer.Typer(cls=ListGroup, no_args_is_help=False)
users.add_typer(tokens, name="tokens")
UserNameArgument = Annotated[str, typer.Argument(help="The name that they sign in with.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, its first line.")
]


@users.callback()
def users_group() -> None:
    """List the users of the console, add and remove them, and change their role, scope or password.

    A viewer reads; an operator also replays, edits, halts and resumes; an admin may do all. The audit log has it all.

    Example: bridge deadletters users add ann --role operator
    """


@users.command("list")
def users_list(context: typer.Context, as_json: ListJsonOption = False) -> None:
    """List users by name. `list` may be left out.

    Example: bridge deadletters users --json
    """
    with open_desk(context) as desk:
        found = desk.users.all()

    def show() -> None:
        if not found:
            print_line(
                console, "no users: the console listens on its own machine alone, and is opened by a one-time link"
            )
            return
        table = Table("name", "role", "added (UTC)", "by", box=SIMPLE_HEAD)
        for each in found:
            table.add_row(make_cell(each.name), each.role, format_minute(each.at), make_cell(each.by))
        console.print(table)
        _print_scopes((each.name, each.scope) for each in found)

    data = [
        {"name": each.name, "role": each.role, "at": format_time(each.at / 1000), "by": each.by}
        | _list_patterns(each.scope)
        for each in found
    ]
    print_result(data, as_json, show)


@users.command("add")
def users_add(
    context: typer.Context,
    name: UserNameArgument,
    role: Annotated[RoleChoice, typer.Option("--role", help="Their permissions.")],
    from_stdin: StdinOption = False,
    topics: TopicsOption = None,
    groups: GroupsOption = None,
    by: ByOption = "",
) -> None:
    """Add a user. The password is asked for, or read from standard input; it is never an argument.

    Without --topics and --consumer-groups the user sees the letters of all. Both options may be repeated.

    Example: bridge deadletters users add ann --role operator --topics 'payments.*'
    """
    require_console()
    from bridge.console.auth.passwords import hash_password
    from bridge.deadletters.accounts.user_account import Role
    from bridge.deadletters.model.letter_scope import LetterScope

    scope = LetterScope.parse(topics or [], groups or [])
    with open_desk(context, makes=True) as desk:
        desk.users.add(name, Role[role.name], hash_password(name, _read_password(from_stdin)), by, scope)
    print_line(console, f"{name.strip().lower()} was added, as {role.value}" + (f", and sees {scope}" if scope else ""))


@users.command("role")
def users_role(
    context: typer.Context,
    name: UserNameArgument,
    role: Annotated[RoleChoice, typer.Argument(help="Their permissions from now on.")],
    by: ByOption = "",
) -> None:
    """Change the role of a user, who is signed out and signs in again.

    Example: bridge deadletters users role ann admin
    """
    with open_desk(context) as desk:
        from bridge.deadletters.accounts.user_account import Role

        desk.users.give_role(name, Role[role.name], by)
    print_line(console, f"{name.strip().lower()} is {role.value} from now on, and was signed out")


@users.command("scope")
def users_scope(
    context: typer.Context,
    name: UserNameArgument,
    topics: TopicsOption = None,
    groups: GroupsOption = None,
    everything: Annotated[bool, typer.Option("--everything", help="The letters of all from now on.")] = False,
    by: ByOption = "",
) -> None:
    """Change the letters that a user sees and acts on. The user is signed out, and signs in again.

    A letter must match a pattern of --topics and one of --consumer-groups; an option that is left out matches all.

    Example: bridge deadletters users scope ann --topics 'payments.*' --topics refunds
    """
    if everything == bool(topics or groups):
        raise typer.BadParameter("Name --topics, --consumer-groups or both; or --everything.")
    with open_desk(context) as desk:
        from bridge.deadletters.model.letter_scope import LetterScope

        scope = LetterScope.parse(topics or [], groups or [])
        desk.users.give_scope(name, scope, by)
    print_line(console, f"{name.strip().lower()} sees {scope} from now on, and was signed out")


@users.command("password")
def users_password(
    context: typer.Context, name: UserNameArgument, from_stdin: StdinOption = False, by: ByOption = ""
) -> None:
    """Change the password of a user, who is signed out everywhere.

    Example: bridge deadletters users password ann
    """
    require_console()
    from bridge.console.auth.passwords import hash_password

    with open_desk(context) as desk:
        desk.users.give_password(name, hash_password(name, _read_password(from_stdin)), by)
    print_line(console, f"{name.strip().lower()} has another password, and was signed out")


@users.command("remove")
def users_remove(context: typer.Context, name: UserNameArgument, by: ByOption = "") -> None:
    """Remove a user, who is signed out at once. The audit log keeps their actions.

    Example: bridge deadletters users remove ann
    """
    with open_desk(context) as desk:
        desk.users.remove(name, by)
    print_line(console, f"{name.strip().lower()} was removed, and was signed out")


def _print_scopes(scopes: "Iterable[tuple[str, LetterScope]]") -> None:
    """Print who sees a part of the letters: a column would not fit."""
    for name, scope in scopes:
        if scope:
            print_line(console, f"{name} sees {scope}")


def _list_patterns(scope: "LetterScope") -> dict[str, list[str]]:
    return {"topics": [*scope.topics], "consumer_groups": [*scope.consumer_groups]}


def _read_password(from_stdin: bool) -> str:
    return read_secret("Password", "--password-stdin", from_stdin=from_stdin, confirm=True)
