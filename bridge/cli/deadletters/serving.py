"""`bridge deadletters serve`: the console."""

from typing import Annotated, Final

import typer

from bridge.cli.deadletters.opening import need_console, opened
from bridge.cli.options import FormatOption, Level, LevelOption, LogFormat
from bridge.process import say_misspelt
from bridge.records import log_lines as logs

#: This machine alone.
LOCAL: Final = "127.0.0.1"


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address on which it listens; another than this needs users.")] = LOCAL,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port on which it listens.")] = 8093,
    level: LevelOption = Level.INFO,
    form: FormatOption = LogFormat.TEXT,
) -> None:
    """The desk in a browser: groups, letters, and each letter with all that is known of it.

    Without users (bridge deadletters users) it listens on this machine alone, and prints a link that opens it once.
    With users, or a proxy that signs people in, it may listen elsewhere too: behind something that speaks TLS.

    Example: bridge deadletters serve --host 0.0.0.0 --port 8093
    """
    logs.begin(level.value, form.value)
    need_console()
    from bridge.web.console import Console
    from bridge.web.serving import serve

    with opened(context, makes=True) as desk:
        say_misspelt(desk.settings)
        serve(Console(desk, f"{desk.settings.group} @ {desk.settings.kafka['bootstrap.servers']}"), host, port)
