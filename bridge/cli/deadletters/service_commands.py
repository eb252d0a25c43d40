"""The commands record, serve and migrate of `bridge deadletters`, and the recorder beside a bridge."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from celery import Celery

from bridge.cli.command_io import AGAIN, FAULTS, NOT_FOUND, console, fail, load_app, print_result
from bridge.cli.command_options import FormatOption, LevelOption, LogFormat, LogLevel
from bridge.cli.deadletters.desk_access import open_desk, require_console, require_extra
from bridge.errors import (
    ConsumerFailed,
    DeskDatabaseNewer,
    DeskOfAnotherKafka,
    DeskUnavailable,
    KafkaUnavailable,
    NoSuchStep,
    RecordedElsewhere,
)
from bridge.formats import log_format as logs
from bridge.handler_routes import Routes
from bridge.inspection.terminal_output import print_line
from bridge.kafka.topic_names import topic_fault
from bridge.operator_actions.topic_halt import find_person
from bridge.settings import Settings

if TYPE_CHECKING:
    from bridge.bridge_process import CompanionThread
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
    once: Annotated[bool, typer.Option("--once", help="End when all records that are there now are recorded.")] = False,
    no_more: Annotated[
        bool,
        typer.Option("--no-more", help="Record nothing; note that no recorder is to run, so that status misses none."),
    ] = False,
    level: LevelOption = LogLevel.INFO,
    form: FormatOption = LogFormat.TEXT,
) -> None:
    """Record dead letters in the database, until SIGTERM or Ctrl-C.

    Stop the recorder and run this with --no-more: then `bridge status` misses none until one is started again.

    Example: bridge deadletters record --topics payments.DLT,connect-errors
    """
    if no_more:
        _end_recording(context)
        return
    logs.begin_log(level.value, form.value)
    recorder, settings = _build_recorder(
        *load_app(context.obj, desk=True), _read_topic_names(topics or ()), stays=not once
    )
    from bridge.bridge_process import log_misspelt_variables
    from bridge.deadletters.recorder.recorder_process import record_once, serve_recorder

    log_misspelt_variables(settings)
    try:
        (record_once if once else serve_recorder)(recorder, settings)
    except (DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere) as error:
        fail(str(error), FAULTS)
    except (ConsumerFailed, DeskUnavailable, KafkaUnavailable) as error:
        fail(str(error), AGAIN)


def _end_recording(context: typer.Context) -> None:
    from bridge.deadletters.inspection.recorder_presence import expect_no_recorder

    with open_desk(context, makes=True) as desk:
        expect_no_recorder(desk.settings)
        desk.trail.add(find_person(), "note", "no recorder is to run any more")
    print_line(console, "no recorder is expected from now on, until one is started again")


def build_recorder_beside(app: Celery, settings: Settings, routes: Routes) -> "CompanionThread":
    """Return a recorder for a thread beside a bridge."""
    from bridge.bridge_process import CompanionThread

    return CompanionThread("the recorder", _build_recorder(app, settings, routes, (), stays=True)[0])


def _build_recorder(
    app: Celery, settings: Settings, routes: Routes, topics: Sequence[str], *, stays: bool
) -> "tuple[Recorder, Settings]":
    """Return a recorder, which connects to nothing yet and waits for servers that do not answer."""
    require_extra()
    from bridge.deadletters.dead_letter_service import DeadLetterService, open_database
    from bridge.deadletters.recorder.recorder import Recorder

    try:
        database = open_database(settings)
    except DeskUnavailable as error:
        fail(str(error), FAULTS)
    return Recorder(DeadLetterService(app, settings, routes, database), topics, stays=stays), settings


def _read_topic_names(topics: Sequence[str]) -> list[str]:
    named = [name.strip() for topic in topics for name in topic.split(",") if name.strip()]
    for name in named:
        if (fault := topic_fault(name)) is not None:
            fail(f"--topics: {fault}", FAULTS)
    return named


#: The console listens on this machine alone unless --host says otherwise.
LOCAL_ADDRESS: Final = "127.0.0.1"


def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option(help="The address on which it listens; any other than the default needs users.")
    ] = LOCAL_ADDRESS,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port on which it listens.")] = 8093,
    level: LevelOption = LogLevel.INFO,
    form: FormatOption = LogFormat.TEXT,
) -> None:
    """Serve the console: status, failure groups, dead letters, plans.

    Without users (bridge deadletters users) it listens on this machine alone, and prints a one-time link.
    With users, or a proxy that signs people in, it may listen elsewhere too: behind a proxy with TLS.

    Example: bridge deadletters serve --host 0.0.0.0 --port 8093
    """
    logs.begin_log(level.value, form.value)
    require_console()
    from bridge.bridge_process import log_misspelt_variables
    from bridge.console.console import Console
    from bridge.console.console_server import serve_console
    from bridge.settings import hide_password

    with open_desk(context, makes=True) as desk:
        log_misspelt_variables(desk.settings)
        kafka = hide_password(desk.settings.kafka["bootstrap.servers"])
        serve_console(Console(desk, f"{desk.settings.group} @ {kafka}"), host, port)


def migrate(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="A step of this version, if not the newest.")] = "head",
    as_json: Annotated[bool, typer.Option("--json", help="Print {database, before, now}.")] = False,
) -> None:
    """Create the tables of the dead-letter store, or bring them to the step that this version needs.

    Every command does that by itself if its database user may. If not, run this as the owner of the tables. Run it
    with --to before an older version of the bridge is deployed again, once nothing of this version runs: any command
    of it would bring the step back. The letters stay; the data that a reverted step added is deleted: with 0004 the
    webhooks.

    Example: DEADLETTERS_DATABASE_URL=postgresql://owner@db/letters bridge deadletters migrate
    """
    _, settings, _ = load_app(context.obj, desk=True)
    require_extra()
    from bridge.deadletters.dead_letter_service import DeadLetterService

    try:
        database, before, now = DeadLetterService.migrated(settings, to)
    except NoSuchStep as error:
        fail(str(error), FAULTS)
    except DeskUnavailable as error:
        fail(str(error), NOT_FOUND)
    found = {"database": database, "before": before, "now": now}
    print_result(found, as_json, lambda: print_line(console, _describe_migration(database, before, now)))


def _describe_migration(database: str, before: str | None, now: str) -> str:
    if before == now:
        return f"{database} is at step {now} already: nothing to do"
    brought = f"{database} was brought from {f'step {before}' if before else 'no tables'} to step {now}"
    if before and before > now:
        return f"{brought}; any command of this version would bring it back to the newest step: run none"
    return brought
