"""Options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
WhyOption = Annotated[str, typer.Option("--why", help="For the status, the log and whoever resumes it.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides.", show_default="user@host")]


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
    typer.Option("--log-level", "-l", envvar="BRIDGE_LOG_LEVEL", case_sensitive=False, help="From this level on."),
]
FormatOption = Annotated[
    LogFormat, typer.Option("--log-format", envvar="BRIDGE_LOG_FORMAT", case_sensitive=False, help="How lines look.")
]
