"""The script `bridge`: every command, and what it does without one."""

import inspect
import os
import sys
from typing import Annotated, Any, ClassVar, Final

import typer

from bridge.cli.answers import OK, USAGE
from bridge.cli.deadletters.entry import COMMANDS as OF_DESK
from bridge.cli.deadletters.entry import deadletters, deadletters_group
from bridge.cli.deciding import halt, resume
from bridge.cli.defaulting import Pointing
from bridge.cli.discard import discard
from bridge.cli.exit_codes import EXIT_CODES, help_of
from bridge.cli.looking import audit, check, find, status, topics
from bridge.cli.options import AppOption, FormatOption, Level, LevelOption, LogFormat
from bridge.cli.policy import policy
from bridge.cli.redriving import redrive
from bridge.cli.running import demo, reset, run, run_bridge
from bridge.settings.versions import versions

#: In the order in which `--help` lists them.
COMMANDS: Final = (run, check, audit, status, halt, resume, topics, find, discard, reset, redrive, demo)
#: What click raises for every option and argument that is wrong; Typer names only its subclass.
_WrongUse: Final[Any] = typer.BadParameter.__base__


class _Commands(Pointing):
    elsewhere: ClassVar = {name: f"bridge deadletters {name}" for name in (*OF_DESK, "plans", "users", "webhooks")}

    def invoke(self, ctx: Any) -> Any:
        """Click's; a command whose 2 says something else ends with `USAGE` where it is used wrongly."""
        try:
            return super().invoke(ctx)
        except _WrongUse as error:
            of = error.ctx
            if of is not None and of.parent is ctx and USAGE in EXIT_CODES.get(of.info_name or "", {}):
                error.exit_code = USAGE
            raise


cli = typer.Typer(
    cls=_Commands,
    name="bridge",
    help="Hands Kafka records to Celery tasks. Without a command it runs the bridge.",
    invoke_without_command=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The script `bridge` and `python -m bridge`."""
    # `python -m` has the working directory on the import path, a script has not.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    cli(prog_name="bridge")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(", ".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit(OK)


@cli.callback()
def default(
    context: typer.Context,
    app: AppOption = "tasks",
    level: LevelOption = Level.INFO,
    form: FormatOption = LogFormat.TEXT,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions, and exit.")
    ] = False,
) -> None:
    """Hands Kafka records to Celery tasks. Without a command it runs the bridge."""
    context.obj = app
    if context.invoked_subcommand is None:
        run_bridge(app, level, form)


for command in COMMANDS:
    cli.command(help=help_of(command.__name__, inspect.getdoc(command) or ""))(command)
cli.add_typer(policy, name="policy")
cli.add_typer(deadletters, name="deadletters", help=help_of("deadletters", inspect.getdoc(deadletters_group) or ""))
