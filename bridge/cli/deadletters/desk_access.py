"""The dead-letter store opened for a command, errors that end it, and filter names that do not exist."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import typer

from bridge.cli.command_io import AGAIN, FAULTS, NOT_FOUND, error_console, fail, fail_unavailable, load_app
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import BridgeError, DeskUnavailable, KafkaUnavailable, LedgerUnavailable, PlanHeld, how_to_install
from bridge.inspection.terminal_output import print_line

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService

#: The packages of the extra `deadletters`.
DESK_LIBRARIES: Final = ("sqlalchemy", "alembic", "cryptography", "httpcore2", "jsonpatch", "jsonpointer", "packaging")
#: The packages of the extra `console`.
CONSOLE_LIBRARIES: Final = ("argon2", "starlette", "jinja2", "markupsafe", "uvicorn")


@contextmanager
def open_desk(context: typer.Context, *, makes: bool = False) -> "Iterator[DeadLetterService]":
    """Yield the dead-letter store of the app that `-A` names.

    An error is printed and ends the command: with 2 if a server or the database does not respond, with 1 if the request
    is wrong, with 75 if another process applies the plan.

    Parameters:
        makes: whether a missing database is created, for commands that write to it.
    """
    require_extra()
    from bridge.deadletters.dead_letter_service import DeadLetterService

    try:
        with DeadLetterService.opened(*load_app(context.obj, desk=True), makes=makes) as desk:
            yield desk
    except PlanHeld as error:
        fail(str(error), AGAIN)
    except (DeskUnavailable, KafkaUnavailable, LedgerUnavailable) as error:
        fail_unavailable(error)
    except BridgeError as error:
        fail(str(error), FAULTS)


def require_extra() -> None:
    """End a command that needs the extra `deadletters` if that is not installed."""
    _require_libraries("deadletters", "the dead-letter store", DESK_LIBRARIES)


def require_console() -> None:
    """End a command that needs the extra `console` if that is not installed."""
    require_extra()
    _require_libraries("console", "the console", CONSOLE_LIBRARIES)


def find_missing_library(libraries: Collection[str] = DESK_LIBRARIES) -> str | None:
    """Return the first package that is not installed; none is imported, because a command uses only a few."""
    return next((library for library in libraries if find_spec(library) is None), None)


def _require_libraries(extra: str, what: str, libraries: Collection[str]) -> None:
    if (library := find_missing_library(libraries)) is not None:
        fail(f"{what} needs {library}; {how_to_install(extra)}.", NOT_FOUND)


def report_absent(desk: "DeadLetterService", chosen: LetterFilter) -> None:
    """Print to stderr a sentence for each name in a filter that does not exist."""
    for sentence in desk.absent.describe_absent(chosen):
        print_line(error_console, sentence, "yellow")


def report_unrecorded(desk: "DeadLetterService") -> None:
    """Print to stderr that the database is incomplete, if no recorder runs."""
    from bridge.deadletters.inspection.recorder_presence import read_recorder_presence

    if sentence := read_recorder_presence(desk.settings).said():
        print_line(error_console, sentence, "yellow")


def refuse_absent(desk: "DeadLetterService", chosen: LetterFilter) -> None:
    """End a command that would change letters if its filter names something that does not exist."""
    if sentences := desk.absent.describe_absent(chosen):
        fail("\n".join([*sentences, "Nothing was planned."]), FAULTS)
