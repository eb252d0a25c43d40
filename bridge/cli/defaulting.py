"""A group of commands that has a default: what is none of them is the default's."""

from typing import Any, ClassVar

from typer.core import TyperGroup


class Defaulting(TyperGroup):
    """`bridge policy HANDLER` is `bridge policy show HANDLER`."""

    default: ClassVar = "show"

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Click's, with the command that is meant."""
        known = {*self.commands, *self.get_help_option_names(context)}
        return super().parse_args(context, args if args and args[0] in known else [self.default, *args])
