"""Options and command groups that several commands share."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from bridge.operator_actions.topic_halt import find_person

AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
WhyOption = Annotated[str, typer.Option("--why", help="The reason: `bridge status` and the log show it.")]
ByOption = Annotated[
    str,
    typer.Option(
        "--by",
        callback=lambda by: by or find_person(),
        help="The name of the person who decides.",
        show_default="user@host",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking: for scripts.")]


def require_why(why: str) -> str:
    """Return the reason; raise BadParameter if it is empty."""
    if not why.strip():
        raise typer.BadParameter("give a reason: the person on call reads it.")
    return why


NeededWhyOption = Annotated[
    str, typer.Option("--why", callback=require_why, help="The reason: `bridge status` and the log show it.")
]


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of the log lines."""

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


CanaryOption = Annotated[
    bool, typer.Option("--canary", help="Send in waves of 1, 5, 20, 100 and the rest; stop at failures.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the outcome of each.")]
PlanOnlyOption = Annotated[bool, typer.Option("--plan", help="Make the plan, and send nothing.")]
TrailOption = Annotated[str, typer.Option("--why", help="The reason, for the audit log.")]
ListJsonOption = Annotated[bool, typer.Option("--json", help="Print a list, an object a row of the table.")]
PlanJsonOption = Annotated[bool, typer.Option("--json", help="Print {plan, state, counts, outcomes}.")]


class RoleChoice(StrEnum):
    """The role of an account."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class DefaultCommandGroup(TyperGroup):
    """A command group with a default command: `bridge policy HANDLER` is `bridge policy show HANDLER`."""

    default: ClassVar = "show"

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Put the default command in front of arguments that name no command."""
        known = {*self.commands, *self.get_help_option_names(context)}
        if args and args[0] in known:
            return super().parse_args(context, args)
        if args and not args[0].startswith("-") and not self._takes_arguments():
            context.fail(self._suggest(context.command_path, args[0]))
        return super().parse_args(context, [self.default, *args])

    def _takes_arguments(self) -> bool:
        return any(each.param_type_name == "argument" for each in self.commands[self.default].params)

    def _suggest(self, group: str, word: str) -> str:
        """Return the message for a word that is no command of the group."""
        if "show" in self.commands:
            return f"No such command {word!r}. Did you mean `{group} show {word}`?"
        return f"No such command {word!r}. Commands: {', '.join(self.commands)}. `{group}` alone lists all."


class ListGroup(DefaultCommandGroup):
    """A command group that lists if no subcommand is given: `bridge deadletters plans`."""

    default: ClassVar = "list"


class SignpostGroup(TyperGroup):
    """A command group that knows the commands of others: `bridge replay` names `bridge deadletters replay`."""

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; fail with its full name if another group has it."""
        if args and args[0] not in self.commands and (meant := self.elsewhere.get(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean `{meant}`?")
        return super().resolve_command(ctx, args)
