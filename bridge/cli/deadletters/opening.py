"""The desk, opened for a command; or why it is not, and the command ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from bridge.cli.answers import AGAIN, FAULTS, NOT_FOUND, fail, loaded
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

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk

#: What the extra `deadletters` brings.
EXTRA: Final = ("sqlalchemy", "alembic", "jsonpatch", "jsonpointer", "packaging")
#: What the extra `console` brings.
CONSOLE: Final = ("argon2", "starlette", "jinja2", "markupsafe", "uvicorn")

#: What was asked for is wrong, or is not there.
REFUSED: Final = (
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
def opened(context: typer.Context, *, makes: bool = False) -> "Iterator[Desk]":
    """The desk of the app that `-A` names.

    Parameters:
        makes: whether a database is made where there is none: by what puts something into it.

    What cannot be asked or done is printed, and ends the command: with 2 where a server or the database does not
    answer, with 1 where what was asked for is wrong, with 75 where another process has the plan.
    """
    need_extra()
    from bridge.deadletters.desk import Desk

    try:
        with Desk.opened(*loaded(context.obj, desk=True), makes=makes) as desk:
            yield desk
    except PlanHeld as error:
        fail(str(error), AGAIN)
    except REFUSED as error:
        fail(str(error), FAULTS)
    except (DeskUnavailable, KafkaUnavailable, LedgerUnavailable) as error:
        fail(str(error), NOT_FOUND)


def need_extra() -> None:
    """End a command that needs the extra `deadletters`, where it is not installed."""
    try:
        import bridge.deadletters.desk  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        fail(f"the dead-letter desk needs {error.name}; {how_to_install('deadletters')}.", NOT_FOUND)


def need_console() -> None:
    """End a command that needs the extra `console`, where it is not installed."""
    need_extra()
    try:
        import bridge.web.serving  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CONSOLE:
            raise
        fail(f"the console needs {error.name}; {how_to_install('console')}.", NOT_FOUND)
