"""`bridge deadletters`: its commands, in the order in which `--help` lists them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

#: By name. None imports the desk's database before it runs: `bridge run` must not need it.
COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {}

deadletters = typer.Typer(no_args_is_help=True)


@deadletters.callback()
def deadletters_group() -> None:
    """The dead-letter desk: record dead letters in a database, look at them, mend them, and send them back.

    Example: bridge deadletters list --handler orders.handlers.charge
    """


for name, command in COMMANDS.items():
    deadletters.command(name)(command)
