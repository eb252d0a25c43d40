"""Groups of commands: one has a default, to which what is none of them belongs; one knows where others are."""

from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperGroup


class Defaulting(TyperGroup):
    """`bridge policy HANDLER` is `bridge policy show HANDLER`."""

    default: ClassVar = "show"

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Click's, with the command that is meant."""
        known = {*self.commands, *self.get_help_option_names(context)}
        return super().parse_args(context, args if args and args[0] in known else [self.default, *args])


class Pointing(TyperGroup):
    """`bridge replay` says that it is `bridge deadletters replay`."""

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Click's, with where a command is that another group has."""
        if args and args[0] not in self.commands and (meant := self.elsewhere.get(args[0])):
            ctx.fail(f"No such command {args[0]!r} here: it is `{meant}`.")
        return super().resolve_command(ctx, args)
