"""The terminal output of commands: tables, lines and cells, safe for any text in them."""

from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from bridge.formats.text_forms import make_printable

#: A fault may have several lines, for example that of a module that cannot be imported.
LINE_BREAK = "\n"
#: The text for a key of zero bytes.
EMPTY_KEY: Final = "(empty)"


def create_console(*, stderr: bool = False) -> Console:
    """Return a console that prints foreign text as it is: rich would replace `:id:` in a key by an emoji."""
    return Console(stderr=stderr, highlight=False, emoji=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table in its full width, even in a pipe of 80 columns: a cut name or number is useless."""
    table.width = Measurement.get(console, console.options.update(max_width=1_000), table).maximum
    console.print(table, crop=False)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print one line; markup and escape sequences in the text are printed as text."""
    console.print(make_printable(text), style=style, markup=False, soft_wrap=True)


def make_cell(text: str) -> str:
    """Return a text that is safe as a cell of a table."""
    return escape(make_printable(text))
