"""The terminal output of commands: a table, a line or a cell, whatever text of others is in it."""

from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from bridge.formats.text_forms import make_printable

#: Faults may have several lines, those of a module that cannot be imported for one.
LINE_BREAK = "\n"
#: What is shown of a key that is there and has no byte.
EMPTY_KEY: Final = "(empty)"


def print_table(console: Console, table: Table) -> None:
    """As wide as it is, also in a pipe of 80 columns: a name or a number that is cut is of no use."""
    table.width = Measurement.get(console, console.options.update(max_width=1_000), table).maximum
    console.print(table, crop=False)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """One line, whatever others have put into it: what is in square brackets is no colour, and an escape none."""
    console.print(make_printable(text), style=style, markup=False, soft_wrap=True)


def make_cell(text: str) -> str:
    """What others have put into a cell of a table."""
    return escape(make_printable(text))
