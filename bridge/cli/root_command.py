"""The script `bridge`: its commands in the order of `--help`; without a command it runs the bridge."""

import os
import sys
from typing import Annotated, Any, ClassVar, Final

import typer

from bridge.cli.command_io import OK, USAGE
from bridge.cli.command_options import AppOption, FormatOption, LevelOption, LogFormat, LogLevel, SignpostGroup
from bridge.cli.deadletters.deadletters_command import DEADLETTERS_COMMANDS, deadletters, deadletters_group
from bridge.cli.discard_redrive_commands import discard, redrive
from bridge.cli.erase_command import erase
from bridge.cli.exit_codes import EXIT_CODES, add_commands, build_help
from bridge.cli.halt_policy_commands import halt, policy, resume
from bridge.cli.inspection_commands import audit, check, find, status, topics
from bridge.cli.run_commands import demo, reset, run, run_bridge
from bridge.settings.installed_versions import read_versions
from bridge.telemetry.otel_sdk import end_exports

#: In the order in which `--help` lists them.
COMMANDS: Final = (run, check, audit, status, halt, resume, topics, find, discard, reset, redrive, erase, demo)
#: What click raises for every option and argument that is wrong; Typer names only its subclass.
_WrongUse: Final[Any] = typer.BadParameter.__base__


class _RootGroup(SignpostGroup):
    elsewhere: ClassVar = {
        name: f"bridge deadletters {name}" for name in (*DEADLETTERS_COMMANDS, "plans", "users", "webhooks")
    }

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit with `USAGE` after a wrong option if the command has that code."""
        try:
            return super().invoke(ctx)
        except _WrongUse as error:
            command = error.ctx
            if command is not None and command.parent is ctx and USAGE in EXIT_CODES.get(command.info_name or "", {}):
                error.exit_code = USAGE
            raise


cli = typer.Typer(
    cls=_RootGroup,
    name="bridge",
    help="Hand Kafka records to Celery tasks. Without a command, run the bridge.",
    invoke_without_command=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the script `bridge`, or `python -m bridge`."""
    # `python -m` has the working directory on the import path, a script has not.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        cli(prog_name="bridge")
    finally:
        end_exports()


def _print_version(wanted: bool) -> None:
    if wanted:
        print(", ".join(f"{name} {number}" for name, number in read_versions().items()))
        raise typer.Exit(OK)


@cli.callback()
def run_default(
    context: typer.Context,
    app: AppOption = "tasks",
    level: LevelOption = LogLevel.INFO,
    form: FormatOption = LogFormat.TEXT,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions, and exit.")
    ] = False,
) -> None:
    """Hand Kafka records to Celery tasks. Without a command, run the bridge."""
    context.obj = app
    if context.invoked_subcommand is None:
        run_bridge(app, level, form)


add_commands(cli, "", {command.__name__: command for command in COMMANDS})
cli.add_typer(policy, name="policy")
cli.add_typer(deadletters, name="deadletters", help=build_help("deadletters", deadletters_group))
