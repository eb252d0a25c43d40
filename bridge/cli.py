"""The commands: parse, call, print."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from celery import Celery
from rich.console import Console
from typer.core import TyperGroup

from bridge import process
from bridge.commands import tables
from bridge.commands.audit import audit as audit_of
from bridge.commands.check import Finding, setting_up
from bridge.commands.check import check as findings
from bridge.commands.find import coordinates, find_key, lines
from bridge.commands.find import find as find_record
from bridge.commands.halt import halt as halt_topics
from bridge.commands.halt import resume as resume_topics
from bridge.commands.halt import who
from bridge.commands.policy import history as history_of
from bridge.commands.policy import policies, set_policy, unset_policy
from bridge.commands.reset import reset as reset_of
from bridge.commands.status import status as status_of
from bridge.commands.topics import topics as topics_of
from bridge.errors import (
    AppNotFound,
    CannotReset,
    ConsumerFailed,
    KafkaUnavailable,
    LedgerCannotFsync,
    LedgerUnavailable,
    NotDecided,
    NothingAnswers,
    PolicyRefused,
    SettingsError,
    UnfitTopic,
    UnknownHandler,
    UnknownTopic,
)
from bridge.handlers import Routes
from bridge.records import log_lines as logs
from bridge.records.printable import printable
from bridge.settings import Settings
from bridge.settings.modules import find_celery_app
from bridge.settings.versions import versions

#: Exit codes, for scripts; the last one is sysexits.h's for what is worth another start (EX_TEMPFAIL).
OK, FAULTS, NOT_FOUND, AGAIN = 0, 1, 2, 75

cli = typer.Typer(
    name="bridge",
    help="Hands Kafka records to Celery tasks. Without a command it runs the bridge.",
    invoke_without_command=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    add_completion=False,
)
AppOption = Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in `celery -A`.")]
console = Console(highlight=False)
Answer = TypeVar("Answer")


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
    """Run the bridge until SIGTERM or Ctrl-C.

    Exits 0 after a clean shutdown, 1 if settings are wrong, 75 if it must be started again.

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
        tables.print_findings(console, found)
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
        tables.print_audit(console, report)
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
        tables.print_status(console, found)


WhyOption = Annotated[str, typer.Option("--why", help="For the status, the log and whoever resumes it.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides.", show_default="user@host")]


@cli.command()
def halt(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Source topics.")],
    why: WhyOption,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print how each topic stands now, as JSON.")] = False,
) -> None:
    """Stop the consumption of topics, for every bridge and worker of the group, until somebody resumes it.

    What is in the queue waits, and spends no attempt; what runs now is finished. No bridge need run.

    Exits 1 for a topic that no handler names, 2 if neither Kafka nor Redis takes it.

    Example: bridge halt orders --why "the bank books twice"
    """
    app, chosen, routes = _loaded(context.obj)
    _decide(lambda: halt_topics(app, chosen, routes, topics, why, by or who()), as_json)


@cli.command()
def resume(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics that are halted.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every topic that is halted.")] = False,
    why: WhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print how each topic stands now, as JSON.")] = False,
) -> None:
    """Go on with topics that are halted, from exactly where they stood. One that is not halted stays as it is.

    Exits 1 for a topic that no handler names, 2 if neither Kafka nor Redis takes it.

    Example: bridge resume orders --why "the bank is mended"
    """
    app, chosen, routes = _loaded(context.obj)
    if bool(topics) == every:
        _fail("name the topics to resume, or --all.", FAULTS)
    _decide(lambda: resume_topics(app, chosen, routes, None if every else topics, why, by or who()), as_json)


def _decide(act: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Do it, and say how each topic stands."""
    try:
        found = act()
    except UnknownTopic as error:
        _fail(str(error), FAULTS)
    except NotDecided as error:
        _fail(str(error), NOT_FOUND)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        tables.print_halts(console, found)


class _Policy(TyperGroup):
    """`bridge policy` with what is none of its commands shows policies."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Click's, with the command that is meant."""
        known = {*self.commands, *self.get_help_option_names(context)}
        return super().parse_args(context, args if args and args[0] in known else ["show", *args])


policy = typer.Typer(cls=_Policy, no_args_is_help=False)
cli.add_typer(policy, name="policy")
HandlerArgument = Annotated[str, typer.Argument(help="A handler, by its whole name.")]
PolicyWhyOption = Annotated[str, typer.Option("--why", help="For the history, and for whoever is on call next.")]


@policy.callback()
def policy_group() -> None:
    """Show each handler's policy (what becomes of its failures), and change it without its code.

    Example: bridge policy orders.handlers.charge --json
    """


@policy.command("show")
def policy_show(
    context: typer.Context,
    handler: Annotated[str | None, typer.Argument(help="Of this handler alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {handler: {policy, changed, fault}}.")] = False,
) -> None:
    """Show each handler's policy, and what was changed of it: by whom, when and why. `show` may be left out.

    Example: bridge policy --json
    """
    app, chosen, routes = _loaded(context.obj)
    found = _of_policies(lambda: policies(app, chosen, routes, handler))
    _print(found, as_json, lambda: tables.print_policies(console, found))


@policy.command("set")
def policy_set(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str], typer.Argument(help="option=value, as at @handler: max_retries=20.")],
    why: PolicyWhyOption,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy as it is now, as JSON.")] = False,
) -> None:
    """Change a handler's policy for all workers of the group, within seconds and until it is unset.

    Delays are seconds; `none` takes a limit or a list away: retry_delays=none, dead_letter_for=none. What waits for its
    retry is judged by the policy in force when it fails next.

    Exits 1 for an unknown handler, option or value, 2 if neither Kafka nor Redis takes it.

    Example: bridge policy set orders.handlers.charge max_retries=20 retry_backoff_max=3600 --why "the bank is down"
    """
    app, chosen, routes = _loaded(context.obj)
    found = _of_policies(lambda: set_policy(app, chosen, routes, handler, options, why, by or who()))
    _print(found, as_json, lambda: tables.print_policy_decision(console, handler, found))


@policy.command("unset")
def policy_unset(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str] | None, typer.Argument(help="Only these; all without any.")] = None,
    why: PolicyWhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy as it is now, as JSON.")] = False,
) -> None:
    """Go back to the policy that the handler's code says. What is not changed stays as it is.

    Exits 1 for an unknown handler or option, 2 if neither Kafka nor Redis takes it.

    Example: bridge policy unset orders.handlers.charge max_retries --why "the bank is back"
    """
    app, chosen, routes = _loaded(context.obj)
    found = _of_policies(lambda: unset_policy(app, chosen, routes, handler, options or [], why, by or who()))
    _print(found, as_json, lambda: tables.print_policy_decision(console, handler, found))


@policy.command("history")
def policy_history(
    context: typer.Context,
    handler: HandlerArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {at, by, why, set, unset}.")] = False,
) -> None:
    """Tell how a handler's policy was changed, the latest first: when, what, by whom and why.

    Example: bridge policy history orders.handlers.charge
    """
    _, chosen, routes = _loaded(context.obj)
    found = _of_policies(lambda: history_of(chosen, routes, handler))
    _print(found, as_json, lambda: tables.print_policy_history(console, handler, found))


def _of_policies(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except (UnknownHandler, PolicyRefused) as error:
        _fail(str(error), FAULTS)
    except NotDecided as error:
        _fail(str(error), NOT_FOUND)


def _print(found: Any, as_json: bool, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show()


@cli.command()
def topics(
    context: typer.Context,
    create: Annotated[bool, typer.Option("--create", help="Make what is missing, sources apart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a topic.")] = False,
) -> None:
    """List the topics that the handlers need and those of ours that are there: what for, how cut, how long kept.

    Exits 1 if anything is wrong with one, 2 if Kafka does not answer.

    Example: bridge topics --create
    """
    _, chosen, routes = _loaded(context.obj)
    try:
        found = topics_of(chosen, routes, create=create)
    except KafkaUnavailable as error:
        _fail(str(error), NOT_FOUND)
    if as_json:
        print(json.dumps(found.to_data(), indent=2))
    else:
        tables.print_topics(console, found)
    raise typer.Exit(FAULTS if found.problems else OK)


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
    where = coordinates(record) if record is not None and not (topic or key) else None
    try:
        if record is None and topic is not None and key is not None:
            found = find_key(app, chosen, routes, topic, key)
        elif where is not None:
            found = find_record(app, chosen, routes, *where)
        else:
            _fail("name a record by its coordinates (orders-3-1234), or by --topic and --key.", FAULTS)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _fail(str(error), NOT_FOUND)
    for partition, first in found.looked_from.items():
        print(f"{topic}-{partition} was looked through from offset {first} on.", file=sys.stderr)
    if not found.data:
        _fail(f"Kafka has no such record: {record or f'{topic}, key {key}'}.", FAULTS)
    if as_json:
        print(json.dumps(found.data[0] if where else found.data, indent=2))
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
    print(printable(words, keep=tables.BREAK), file=sys.stderr)
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
    try:
        process.run(*_loaded(name))
    except (LedgerCannotFsync, UnfitTopic) as error:
        _fail(str(error), FAULTS)
    except ConsumerFailed as error:
        _fail(str(error), AGAIN)


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
    return app, replace(chosen, app=name), routes
