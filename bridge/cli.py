"""The commands: parse, call, print."""

import json
import logging
import os
import signal
import sys
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer
from celery import Celery
from rich.console import Console
from rich.markup import escape

from bridge.commands import tables as report_table
from bridge.commands.audit import audit as audit_of
from bridge.commands.check import Finding, setting_up
from bridge.commands.check import check as findings
from bridge.commands.find import find as find_record
from bridge.commands.find import find_key, lines
from bridge.commands.reset import reset as reset_of
from bridge.commands.status import status as status_of
from bridge.errors import (
    AppNotFound,
    CannotReset,
    KafkaUnavailable,
    LedgerCannotFsync,
    LedgerUnavailable,
    NothingAnswers,
    SettingsError,
    UnknownTopic,
)
from bridge.handlers import Routes
from bridge.http import Sidecar
from bridge.loop.bridge import Bridge
from bridge.records import log_lines as logs
from bridge.records.printable import printable
from bridge.settings import Settings, hide_password
from bridge.settings.modules import find_celery_app
from bridge.settings.versions import versions

#: Exit codes, for scripts.
OK, FAULTS, NOT_FOUND = 0, 1, 2

cli = typer.Typer(
    name="bridge",
    help="Hands Kafka records to Celery tasks. Without a command it runs the bridge.",
    invoke_without_command=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    add_completion=False,
)
AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
logger = logging.getLogger("bridge")
console = Console(highlight=False)
#: Faults may have several lines, those of a module that cannot be imported for one.
_BREAK = "\n"
_COLOURS = {"ok": "green", "warning": "yellow", "fault": "red"}


def main() -> None:
    """The script `bridge` and `python -m bridge`."""
    # `python -m` has the working directory on the import path, a script has not.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    cli(prog_name="bridge")


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


def _print_version(wanted: bool) -> None:
    if wanted:
        print(", ".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit(OK)


@cli.callback()
def default(
    context: typer.Context,
    app: AppOption = "tasks",
    level: LevelOption = Level.INFO,
    form: FormatOption = LogFormat.TEXT,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions, and exit.")
    ] = False,
) -> None:
    """Hands Kafka records to Celery tasks. Without a command it runs the bridge."""
    context.obj = app
    if context.invoked_subcommand is None:
        _run(app, level, form)


@cli.command()
def run(context: typer.Context, level: LevelOption = Level.INFO, form: FormatOption = LogFormat.TEXT) -> None:
    """Run the bridge until SIGTERM or Ctrl-C. Exits 0 after a clean shutdown, 1 if settings are wrong.

    Example: bridge -A tasks run --log-format json
    """
    _run(context.obj, level, form)


@cli.command()
def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {level, text}.")] = False,
) -> None:
    """Check settings, handlers and connections, and list everything that is wrong. Exits 1 if anything is.

    Example: bridge check --json
    """
    try:
        found = findings(find_celery_app(context.obj))
    except AppNotFound as error:
        found = [Finding("fault", str(error))]
    if as_json:
        print(json.dumps([finding.to_data() for finding in found], indent=2))
    else:
        for finding in found:
            console.print(
                f"[{_COLOURS[finding.level]}]{finding.level:>7}[/]  {escape(printable(finding.text, keep=_BREAK))}",
                soft_wrap=True,
            )
    raise typer.Exit(FAULTS if any(finding.level == "fault" for finding in found) else OK)


@cli.command()
def audit(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Count the fates of every offset of a topic. Exits 1 if anything is unaccounted for or forgotten.

    Example: bridge audit orders --json
    """
    _, chosen, routes = _loaded(context.obj)
    if chosen.ledger_url is None:
        _fail("an audit reads the ledger, and the broker is no Redis: set LEDGER_URL.", FAULTS)
    try:
        report = audit_of(chosen, routes, topic)
    except UnknownTopic as error:
        _fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _fail(str(error), NOT_FOUND)
    if as_json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        report_table.print_audit(console, report)
    raise typer.Exit(OK if report.clean else FAULTS)


@cli.command()
def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Say what needs a person, what the group consumes and how far, and what bridges and workers say of themselves.

    Exits 0 if it could tell anything, 2 if neither Kafka nor Redis answers.

    Example: bridge status --json
    """
    app, chosen, routes = _loaded(context.obj)
    try:
        found = status_of(app, chosen, routes)
    except NothingAnswers as error:
        _fail(str(error), NOT_FOUND)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        report_table.print_status(console, found)


@cli.command()
def find(
    context: typer.Context,
    record: Annotated[str | None, typer.Argument(help="Coordinates: orders-3-1234.")] = None,
    topic: Annotated[str | None, typer.Option(help="With --key: a source topic.")] = None,
    key: Annotated[str | None, typer.Option(help="Every record with this key, as text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON; by key: a list.")] = False,
) -> None:
    """Say where one record stands for each handler: its fate, where it lies now, its attempts, its last failure.

    Exits 1 if there is no such record.

    Example: bridge find orders-3-1234 --json
    """
    app, chosen, routes = _loaded(context.obj)
    if chosen.ledger_url is None:
        _fail("fates are in the ledger, and the broker is no Redis: set LEDGER_URL.", FAULTS)
    parts = (record or "").rsplit("-", 2)
    by_key = topic is not None and key is not None and record is None
    if not by_key and (topic or key or len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal())):
        _fail("name a record by its coordinates (orders-3-1234), or by --topic and --key.", FAULTS)
    try:
        if by_key:
            found = find_key(app, chosen, routes, str(topic), str(key))
        else:
            found = find_record(app, chosen, routes, parts[0], int(parts[1]), int(parts[2]))
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _fail(str(error), NOT_FOUND)
    for partition, first in found.looked_from.items():
        print(f"{topic}-{partition} was looked through from offset {first} on.", file=sys.stderr)
    if not found.data:
        _fail(f"Kafka has no such record: {record or f'{topic}, key {key}'}.", FAULTS)
    if as_json:
        print(json.dumps(found.data if by_key else found.data[0], indent=2))
    else:
        for line in lines(found.data):
            console.print(line, markup=False, soft_wrap=True)


@cli.command()
def reset(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as ISO 8601.")],
    again: Annotated[bool, typer.Option("--again", help="Run again what is settled from there on.")] = False,
) -> None:
    """Move the group's committed offsets of a topic, while no bridge runs. What is settled is skipped, unless --again.

    Example: bridge reset orders --to 2026-01-31T12:00 --again
    """
    _, chosen, routes = _loaded(context.obj)
    try:
        moved = reset_of(chosen, routes, topic, to, again=again)
    except CannotReset as error:
        _fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _fail(str(error), NOT_FOUND)
    for each in moved:
        before = "nothing" if each.before is None else each.before
        console.print(f"{topic}-{each.partition}: {before} → {each.after}")


def _fail(words: str, code: int) -> NoReturn:
    print(printable(words, keep=_BREAK), file=sys.stderr)
    raise typer.Exit(code)


@cli.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="End when every record has ended.")] = False,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="How many orders to produce: 100 with --once, else no end."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same orders.")] = None,
) -> None:
    """Show records being handled, retried and dead-lettered, on a Kafka and a Redis that it brings along.

    Ends at Ctrl-C, with a table of what became of every record.

    With --once it exits 0 when every record has ended, and 1 otherwise.

    Example: bridge demo --once
    """
    from bridge.demo.main import run as run_demo

    raise typer.Exit(run_demo(once=once, records=records, seed=seed))


def _run(name: str, level: Level, form: LogFormat) -> None:
    logs.begin(level.value, form.value)
    app, chosen, routes = _loaded(name)
    bridge = Bridge(app, chosen, routes)
    sidecar = Sidecar(bridge.metrics.registry, bridge.alive, bridge.obstacles)
    port = sidecar.start(chosen.environment.BRIDGE_HTTP_PORT)
    _announce(chosen, routes, port)
    _stop_on_signals(bridge)
    try:
        bridge.run()
    except LedgerCannotFsync as error:
        _fail(str(error), FAULTS)
    finally:
        sidecar.stop()
    logger.info("stopped.")


def _loaded(name: str) -> tuple[Celery, Settings, Routes]:
    """The app, its settings and its handlers; what is wrong is printed, and ends the command."""
    try:
        app = find_celery_app(name)
    except AppNotFound as error:
        print(error, file=sys.stderr)
        raise typer.Exit(NOT_FOUND) from None
    chosen, routes, faults, imported = setting_up(app, os.environ)
    if faults:
        print(f"The bridge does not start: this is wrong:\n{SettingsError(faults)}", file=sys.stderr)
        raise typer.Exit(FAULTS if imported else NOT_FOUND)
    return app, chosen, routes


def _announce(chosen: Settings, routes: Routes, port: int | None) -> None:
    logger.info(
        "group %r, Kafka %s, broker %s",
        chosen.group,
        chosen.kafka["bootstrap.servers"],
        hide_password(chosen.broker_url),
    )
    for text in chosen.misspelt:
        logger.warning("%s", text)
    for handler in routes:
        logger.info("%s → %s (queue %r)", ", ".join(handler.topics), handler.name, handler.queue)
    if port is not None:
        logger.info("http://localhost:%d/healthz /readyz /metrics", port)


def _stop_on_signals(bridge: Bridge) -> None:
    def stop(number: int, frame: Any) -> None:
        # A second signal ends the process as if there were no handler.
        signal.signal(number, signal.SIG_DFL)
        logger.info("%s: finishing the hand-off in flight.", signal.Signals(number).name)
        bridge.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
