"""The command `bridge deadletters`: its subcommands in the order of `--help`.

A new subcommand is a function in the `*_commands.py` of its subject, and is listed here.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import typer

from bridge.cli.command_options import SignpostGroup
from bridge.cli.deadletters.letter_commands import (
    list_groups,
    list_letters,
    mark_fixed,
    note,
    show,
    show_stats,
    simulate,
)
from bridge.cli.deadletters.plan_commands import plans
from bridge.cli.deadletters.replay_commands import archive, check, discard, edit, reopen, replay, resolve
from bridge.cli.deadletters.service_commands import migrate, record, serve
from bridge.cli.deadletters.shadow_command import shadow
from bridge.cli.deadletters.transfer_commands import export, import_letters
from bridge.cli.deadletters.user_commands import users
from bridge.cli.deadletters.webhook_commands import webhooks
from bridge.cli.exit_codes import add_commands

#: By name. None imports the database before it runs: `bridge run` must not need it.
DEADLETTERS_COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {
    "record": record,
    "list": list_letters,
    "groups": list_groups,
    "show": show,
    "replay": replay,
    "reopen": reopen,
    "resolve": resolve,
    "edit": edit,
    "check": check,
    "shadow": shadow,
    "discard": discard,
    "note": note,
    "archive": archive,
    "fixed": mark_fixed,
    "stats": show_stats,
    "simulate": simulate,
    "export": export,
    "import": import_letters,
    "migrate": migrate,
    "serve": serve,
}


class _DeadlettersGroup(SignpostGroup):
    elsewhere: ClassVar = {"redrive": "bridge redrive"}


deadletters = typer.Typer(cls=_DeadlettersGroup, no_args_is_help=True)


@deadletters.callback()
def deadletters_group() -> None:
    """Record dead letters in a database, find them, fix them, and replay them.

    Example: bridge deadletters list --handler orders.handlers.charge
    """


add_commands(deadletters, "deadletters", DEADLETTERS_COMMANDS)
deadletters.add_typer(plans, name="plans")
deadletters.add_typer(users, name="users")
deadletters.add_typer(webhooks, name="webhooks")
