"""`bridge deadletters`: its commands, in the order in which `--help` lists them."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import typer

from bridge.cli.deadletters.editing import check, edit
from bridge.cli.deadletters.ending import archive, discard
from bridge.cli.deadletters.exporting import export, import_letters
from bridge.cli.deadletters.fixing import fixed
from bridge.cli.deadletters.listing import groups, list_letters, stats
from bridge.cli.deadletters.migrating import migrate
from bridge.cli.deadletters.noting import note
from bridge.cli.deadletters.planning import plans
from bridge.cli.deadletters.recording import record
from bridge.cli.deadletters.reopening import reopen, resolve
from bridge.cli.deadletters.replaying import replay
from bridge.cli.deadletters.serving import serve
from bridge.cli.deadletters.showing import show
from bridge.cli.deadletters.simulating import simulate
from bridge.cli.deadletters.users import users
from bridge.cli.deadletters.webhooks import webhooks
from bridge.cli.defaulting import Pointing

#: By name. None imports the desk's database before it runs: `bridge run` must not need it.
COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {
    "record": record,
    "list": list_letters,
    "groups": groups,
    "show": show,
    "replay": replay,
    "reopen": reopen,
    "resolve": resolve,
    "edit": edit,
    "check": check,
    "discard": discard,
    "note": note,
    "archive": archive,
    "fixed": fixed,
    "stats": stats,
    "simulate": simulate,
    "export": export,
    "import": import_letters,
    "migrate": migrate,
    "serve": serve,
}


class _Commands(Pointing):
    elsewhere: ClassVar = {"redrive": "bridge redrive"}


deadletters = typer.Typer(cls=_Commands, no_args_is_help=True)


@deadletters.callback()
def deadletters_group() -> None:
    """The dead-letter desk: record dead letters in a database, find them, fix them, and replay them.

    Example: bridge deadletters list --handler orders.handlers.charge
    """


for name, command in COMMANDS.items():
    deadletters.command(name)(command)
deadletters.add_typer(plans, name="plans")
deadletters.add_typer(users, name="users")
deadletters.add_typer(webhooks, name="webhooks")
