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


class Pointing(TyperGroup):
    """`bridge replay` says that it is `bridge deadletters replay`."""

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Click's, with where a command is that another group has."""
        if args and args[0] not in self.commands and (meant := self.elsewhere.get(args[0])):
            ctx.fail(f"No such command {args[0]!r} here: it is `{meant}`.")
        return super().resolve_command(ctx, args)
