"""The dead-letter store opened for a command, errors that end it, and filter names that do not exist."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from bridge.cli.command_io import AGAIN, FAULTS, NOT_FOUND, error_console, fail, load_app
from bridge.deadletters.inspection.recorder_presence import read_recorder_presence
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import (
    ConsoleRefused,
    CopyRefused,
    DeskUnavailable,
    EditRefused,
    FilterFault,
    KafkaUnavailable,
    LedgerUnavailable,
    NoExport,
    NoMoment,
    NoSuchGroup,
    NoSuchLetter,
    NoSuchPlan,
    PatchRefused,
    PlanHeld,
    PlanRefused,
    PolicyRefused,
    RecordingNotEnded,
    RedriveRefused,
    TokenRefused,
    UnknownHandler,
    UserRefused,
    WebhookRefused,
    how_to_install,
)
from bridge.inspection.terminal_output import print_line

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService

#: What the extra `deadletters` brings.
DESK_LIBRARIES: Final = ("sqlalchemy", "alembic", "jsonpatch", "jsonpointer", "packaging")
#: What the extra `console` brings.
CONSOLE_LIBRARIES: Final = ("argon2", "starlette", "jinja2", "markupsafe", "uvicorn")

#: What was asked for is wrong, or is not there.
REFUSALS: Final = (
    *(
        CopyRefused,
        EditRefused,
        FilterFault,
        NoExport,
        NoMoment,
        PatchRefused,
        PlanRefused,
        PolicyRefused,
        RecordingNotEnded,
        RedriveRefused,
    ),
    *(ConsoleRefused, NoSuchGroup, NoSuchLetter, NoSuchPlan, UnknownHandler, TokenRefused, UserRefused),
    WebhookRefused,
)


@contextmanager
def open_desk(context: typer.Context, *, makes: bool = False) -> "Iterator[DeadLetterService]":
    """The desk of the app that `-A` names.

    Parameters:
        makes: whether a database is made where there is none: by what puts something into it.

    What cannot be asked or done is printed, and ends the command: with 2 where a server or the database does not
    answer, with 1 where what was asked for is wrong, with 75 where another process has the plan.
    """
    require_extra()
    from bridge.deadletters.dead_letter_service import DeadLetterService

    try:
        with DeadLetterService.opened(*load_app(context.obj, desk=True), makes=makes) as desk:
            yield desk
    except PlanHeld as error:
        fail(str(error), AGAIN)
    except REFUSALS as error:
        fail(str(error), FAULTS)
    except (DeskUnavailable, KafkaUnavailable, LedgerUnavailable) as error:
        fail(str(error), NOT_FOUND)


def require_extra() -> None:
    """End a command that needs the extra `deadletters`, where it is not installed."""
    try:
        import bridge.deadletters.dead_letter_service  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in DESK_LIBRARIES:
            raise
        fail(f"the dead-letter desk needs {error.name}; {how_to_install('deadletters')}.", NOT_FOUND)


def require_console() -> None:
    """End a command that needs the extra `console`, where it is not installed."""
    require_extra()
    try:
        import bridge.console.console_server  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CONSOLE_LIBRARIES:
            raise
        fail(f"the console needs {error.name}; {how_to_install('console')}.", NOT_FOUND)


def report_absent(desk: "DeadLetterService", chosen: LetterFilter) -> None:
    """On stderr, as what was asked for is answered."""
    for sentence in desk.absent.of(chosen):
        print_line(error_console, sentence, "yellow")


def report_unrecorded(desk: "DeadLetterService") -> None:
    """On stderr, that what the database has is not all, where no recorder lives: it looks well then."""
    if sentence := read_recorder_presence(desk.settings).said():
        print_line(error_console, sentence, "yellow")


def refuse_absent(desk: "DeadLetterService", chosen: LetterFilter) -> None:
    """End a command that would change letters, where it names something that is not there: nothing is planned."""
    if found := desk.absent.of(chosen):
        fail("\n".join([*found, "Nothing was planned."]), FAULTS)
