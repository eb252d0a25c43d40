"""`bridge deadletters record`, and the recorder that runs beside a bridge."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from celery import Celery

from bridge.cli.answers import AGAIN, FAULTS, console, fail, loaded
from bridge.cli.deadletters.opening import need_extra, opened
from bridge.cli.options import FormatOption, Level, LevelOption, LogFormat
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.questions.recorders import want_none
from bridge.errors import (
    ConsumerFailed,
    DeskDatabaseNewer,
    DeskOfAnotherKafka,
    DeskUnavailable,
    KafkaUnavailable,
    RecordedElsewhere,
)
from bridge.handlers import Routes
from bridge.process import Beside, say_misspelt
from bridge.records import log_lines as logs
from bridge.settings import Settings
from bridge.topics.names import topic_fault

if TYPE_CHECKING:
    from bridge.deadletters.recorder.recorder import Recorder


def record(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            help="Dead-letter topics besides those of the handlers, several with commas; all their records are "
            "recorded, of every group.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when what lies there now is recorded.")] = False,
    no_more: Annotated[
        bool,
        typer.Option("--no-more", help="Record nothing; say that none is to run any more, so that none is missed."),
    ] = False,
    level: LevelOption = Level.INFO,
    form: FormatOption = LogFormat.TEXT,
) -> None:
    """Record dead letters in the desk's database, until SIGTERM or Ctrl-C.

    With --no-more, once it was stopped, `bridge status` does not miss it until one is started again.

    Exits 0 after a clean shutdown, or with --once when all is recorded; 1 if settings are wrong; 75 if it must be
    started again, or with --once if Kafka or the database did not answer.

    Example: bridge deadletters record --topics payments.DLT,connect-errors
    """
    if no_more:
        _end_recording(context)
        return
    logs.begin(level.value, form.value)
    recorder, settings = _recorder(*loaded(context.obj, desk=True), _named(topics or ()), stays=not once)
    from bridge.deadletters.recorder.serving import serve, serve_once

    say_misspelt(settings)
    try:
        (serve_once if once else serve)(recorder, settings)
    except (DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere) as error:
        fail(str(error), FAULTS)
    except (ConsumerFailed, DeskUnavailable, KafkaUnavailable) as error:
        fail(str(error), AGAIN)


def _end_recording(context: typer.Context) -> None:
    with opened(context, makes=True) as desk:
        want_none(desk.settings)
        desk.trail.add(who(), "note", "no recorder is to run any more")
    say(console, "no recorder is missed from now on, until one is started again")


def beside(app: Celery, settings: Settings, routes: Routes) -> Beside:
    """The recorder, for a thread beside a bridge."""
    return Beside("the recorder", _recorder(app, settings, routes, (), stays=True)[0])


def _recorder(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str], *, stays: bool
) -> "tuple[Recorder, Settings]":
    """Connects to nothing yet: what does not answer is waited for."""
    need_extra()
    from bridge.deadletters.desk import Desk
    from bridge.deadletters.recorder.recorder import Recorder
    from bridge.deadletters.store.database import Database

    try:
        database = Database(settings.environment.DEADLETTERS_DATABASE_URL)
    except DeskUnavailable as error:
        fail(str(error), FAULTS)
    return Recorder(Desk(app, settings, routes, database), topics, stays=stays), settings


def _named(topics: Sequence[str]) -> list[str]:
    named = [name.strip() for each in topics for name in each.split(",") if name.strip()]
    for name in named:
        if (fault := topic_fault(name)) is not None:
            fail(f"--topics: {fault}", FAULTS)
    return named
