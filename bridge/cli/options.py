"""Options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
WhyOption = Annotated[str, typer.Option("--why", help="For the status, the log and whoever resumes it.")]
ByOption = Annotated[str, typer.Option("--by", help="The person who decides.", show_default="user@host")]


def said(why: str) -> str:
    """A reason that says something: whoever is on call next has nothing else."""
    if not why.strip():
        raise typer.BadParameter("say why: whoever is on call next reads it.")
    return why


NeededWhyOption = Annotated[
    str, typer.Option("--why", callback=said, help="For the status, the log and whoever resumes it.")
]


class Level(StrEnum):
    """From which level on lines are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


LevelOption = Annotated[
    Level,
    typer.Option(
        "--log-level", "-l", envvar="BRIDGE_LOG_LEVEL", case_sensitive=False, help="The lowest level that is logged."
    ),
]
FormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="BRIDGE_LOG_FORMAT", case_sensitive=False, help="The format of log lines."),
]
