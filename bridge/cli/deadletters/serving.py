"""`bridge deadletters serve`: the console."""

from typing import Annotated

import typer

from bridge.cli.deadletters.opening import need_console, opened
from bridge.cli.options import FormatOption, Level, LevelOption, LogFormat
from bridge.records import log_lines as logs


def serve(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens, on this machine.")] = 8093,
    level: LevelOption = Level.INFO,
    form: FormatOption = LogFormat.TEXT,
) -> None:
    """The desk in a browser: groups, letters, and each letter with all that is known of it.

    Example: bridge deadletters serve --port 8093
    """
    logs.begin(level.value, form.value)
    need_console()
    from bridge.web.console import Console
    from bridge.web.serving import serve

    with opened(context) as desk:
        serve(Console(desk, f"{desk.settings.group} @ {desk.settings.kafka['bootstrap.servers']}"), port)
