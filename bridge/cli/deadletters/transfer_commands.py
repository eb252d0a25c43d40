"""The commands export and import of `bridge deadletters`."""

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge.cli.command_io import FAULTS, NOT_FOUND, OK, console, fail, print_result, show_progress
from bridge.cli.command_options import ByOption
from bridge.cli.deadletters.desk_access import open_desk, require_extra
from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.inspection.terminal_output import print_line
from bridge.jobs.group_facts import format_letter_count

if TYPE_CHECKING:
    from bridge.deadletters.inspection.letter_file import ImportResult

#: In the place of a file's name: the standard output, or input.
STANDARD_STREAM: Final = "-"

ToOption = Annotated[
    str, typer.Option("--to", help="A file; compressed if its name ends with .gz.", show_default="stdout")
]
FilesArgument = Annotated[list[str], typer.Argument(help="Files of an export or of the archive; -: stdin.")]


@with_filter_options()
def export(context: typer.Context, chosen: LetterFilter, to: ToOption = STANDARD_STREAM, by: ByOption = "") -> None:
    """Write letters as lines of JSON, with all their data, as `import` reads them.

    Values are base64, with their text beside it if they are text. A file gets its name when it is complete.
    The audit log notes who exported which letters, and how many.

    Example: bridge deadletters export --to letters.jsonl.gz
    """
    count = 0
    with open_desk(context) as desk, show_progress("exported") as heard, _open_output(to) as write:

        def told(done: int, of: int) -> None:
            nonlocal count
            count = done
            heard(f"{done:,} of {format_letter_count(of)}")

        for line in desk.transfers.lines(by, chosen, told):
            write(f"{line}\n".encode())
    if to != STANDARD_STREAM:
        print_line(console, f"{format_letter_count(count)} in {to}")


def import_letters(
    context: typer.Context,
    files: FilesArgument,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print {added, known, refused, why}.")] = False,
) -> None:
    """Import letters of an export, or of the archive, into the database. Letters that are there already stay.

    It can be interrupted and run again. Letters that were replaying are open here. If a line is
    refused, or a file ends too early, all other letters are imported.

    Example: DEADLETTERS_DATABASE_URL=postgresql://… bridge deadletters import letters.jsonl.gz
    """
    require_extra()
    from bridge.deadletters.inspection.letter_file import ImportResult

    total, torn = ImportResult(), list[str]()
    with open_desk(context, makes=True) as desk, show_progress("imported") as heard:
        for file in files:
            with _open_input(file) as lines:
                whole = _FileLines(lines)
                _add_counts(total, desk.transfers.take(whole, by, file, lambda taken: heard(f"{taken.read:,}")))
            torn += [file] if whole.torn else []
    print_result(total.to_data() | {"torn": torn}, as_json, lambda: _print_import(total))
    for file in torn:
        print(f"{file} ends in the middle of a line: all lines before it were read.", file=sys.stderr)
    raise typer.Exit(FAULTS if total.refused or torn else OK)


class _FileLines:
    """The lines of a file, up to its end or to a part that a crash has torn."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines, self.torn = lines, False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._lines
        except (EOFError, zlib.error):
            self.torn = True


def _add_counts(total: "ImportResult", found: "ImportResult") -> None:
    total.added += found.added
    total.known += found.known
    total.refused += found.refused
    total.why += found.why


def _print_import(taken: "ImportResult") -> None:
    print_line(
        console,
        f"{format_letter_count(taken.added)} added, {taken.known:,} were there already, {taken.refused:,} refused",
    )
    for number, why in taken.why:
        print_line(console, f"  line {number}: {why}", "red")


@contextmanager
def _open_output(to: str) -> Iterator[Callable[[bytes], Any]]:
    """Open an output; an incomplete file has another name, and is deleted on failure."""
    if to == STANDARD_STREAM:
        yield sys.stdout.buffer.write
        return
    partial = Path(f"{to}.{os.getpid()}.partial")
    try:
        # The file has payloads: only its owner may read it.
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as plain:
            if to.endswith(".gz"):
                with gzip.open(plain, "wb", 6) as file:
                    yield file.write
            else:
                yield plain.write
            plain.flush()
            os.fsync(plain.fileno())
        partial.replace(to)
    except OSError as error:
        fail(f"{to} could not be written: {error.strerror or error}.", NOT_FOUND)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _open_input(file: str) -> Iterator[Iterable[bytes]]:
    try:
        if file == STANDARD_STREAM:
            yield sys.stdin.buffer
            return
        with gzip.open(file) if file.endswith(".gz") else open(file, "rb") as lines:
            yield lines
    except OSError as error:
        fail(f"{file} could not be read: {error.strerror or error}.", NOT_FOUND)
