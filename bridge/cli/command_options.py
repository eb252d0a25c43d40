"""Options and command groups that several commands share."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
WhyOption = Annotated[str, typer.Option("--why", help="For the status, the log and whoever resumes it.")]
ByOption = Annotated[str, typer.Option("--by", help="The person who decides.", show_default="user@host")]


def require_why(why: str) -> str:
    """A reason that says something: whoever is on call next has nothing else."""
    if not why.strip():
        raise typer.BadParameter("say why: whoever is on call next reads it.")
    return why


NeededWhyOption = Annotated[
    str, typer.Option("--why", callback=require_why, help="For the status, the log and whoever resumes it.")
]


class LogLevel(StrEnum):
    """From which level on lines are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


LevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level", "-l", envvar="BRIDGE_LOG_LEVEL", case_sensitive=False, help="The lowest level that is logged."
    ),
]
FormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="BRIDGE_LOG_FORMAT", case_sensitive=False, help="The format of log lines."),
]


CanaryOption = Annotated[bool, typer.Option("--canary", help="In waves: 1, 5, 20, 100, the rest.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Until it is known how each has ended.")]
PlanOnlyOption = Annotated[bool, typer.Option("--plan", help="Make the plan, and send nothing yet.")]
TrailOption = Annotated[str, typer.Option("--why", help="The reason, for the audit log.")]
PlanJsonOption = Annotated[bool, typer.Option("--json", help="Print {plan, state, counts, outcomes}.")]


class RoleChoice(StrEnum):
    """A role that somebody can be given."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class DefaultCommandGroup(TyperGroup):
    """`bridge policy HANDLER` is `bridge policy show HANDLER`."""

    default: ClassVar = "show"

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Click's, with the command that is meant."""
        known = {*self.commands, *self.get_help_option_names(context)}
        if args and args[0] in known:
            return super().parse_args(context, args)
        if args and not args[0].startswith("-") and not self._takes_arguments():
            context.fail(self._meant(context.command_path, args[0]))
        return super().parse_args(context, [self.default, *args])

    def _takes_arguments(self) -> bool:
        return any(each.param_type_name == "argument" for each in self.commands[self.default].params)

    def _meant(self, group: str, word: str) -> str:
        """What to write in the place of a word that is no command of the group."""
        if "show" in self.commands:
            return f"No such command {word!r} here: is `{group} show {word}` meant?"
        return f"No such command {word!r} here, of: {', '.join(self.commands)}. Without one `{group}` lists them all."


class SignpostGroup(TyperGroup):
    """`bridge replay` says that it is `bridge deadletters replay`."""

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Click's, with where a command is that another group has."""
        if args and args[0] not in self.commands and (meant := self.elsewhere.get(args[0])):
            ctx.fail(f"No such command {args[0]!r} here: it is `{meant}`.")
        return super().resolve_command(ctx, args)
