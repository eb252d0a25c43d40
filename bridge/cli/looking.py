"""The commands that look and change nothing, but for the topics that `bridge topics --create` makes."""

import sys
from typing import Annotated, Any

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, OK, USAGE, console, fail, loaded, print_found
from bridge.cli.deadletters.problems import desk_findings, desk_problems
from bridge.commands import tables
from bridge.commands.audit import audit as audit_of
from bridge.commands.check import Finding
from bridge.commands.check import check as findings
from bridge.commands.find import coordinates, find_key, lines
from bridge.commands.find import find as find_record
from bridge.commands.status import status as status_of
from bridge.commands.status_data import with_more
from bridge.commands.topics import topics as topics_of
from bridge.errors import AppNotFound, KafkaUnavailable, LedgerUnavailable, NothingAnswers, UnknownTopic
from bridge.settings.modules import find_celery_app


def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {level, text}.")] = False,
) -> None:
    """Check settings, handlers and connections, and list everything that is wrong.

    Example: bridge check --json
    """
    try:
        found = findings(find_celery_app(context.obj), name=context.obj)
    except AppNotFound as error:
        found = [Finding("fault", str(error))]
    found += desk_findings()
    print_found([finding.to_data() for finding in found], as_json, lambda: tables.print_findings(console, found))
    raise typer.Exit(FAULTS if any(finding.level == "fault" for finding in found) else OK)


def audit(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Count the fates of every offset of a topic: what is unaccounted for or forgotten is a fault.

    Example: bridge audit orders --json
    """
    app, chosen, routes = loaded(context.obj, wrong=USAGE)
    if chosen.ledger_url is None:
        fail("an audit reads the ledger, and the broker is no Redis: set LEDGER_URL.", NOT_FOUND)
    try:
        report = audit_of(app, chosen, routes, topic)
    except UnknownTopic as error:
        fail(str(error), USAGE)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail(str(error), NOT_FOUND)
    print_found(report.to_data(), as_json, lambda: tables.print_audit(console, report))
    raise typer.Exit(OK if report.clean else FAULTS)


def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Say what needs a person, what the group consumes and how far, and what bridges and workers say of themselves.

    Example: bridge status --json
    """
    app, chosen, routes = loaded(context.obj)
    try:
        found = status_of(app, chosen, routes)
    except NothingAnswers as error:
        fail(str(error), NOT_FOUND)
    found = with_more(found, desk_problems(chosen, routes))
    print_found(found, as_json, lambda: tables.print_status(console, found))


def topics(
    context: typer.Context,
    create: Annotated[bool, typer.Option("--create", help="Make what is missing, sources apart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a topic.")] = False,
) -> None:
    """List the topics that the handlers need and those of ours that are there: what for, how cut, how long kept.

    Example: bridge topics --create
    """
    app, chosen, routes = loaded(context.obj, wrong=USAGE)
    try:
        found = topics_of(app, chosen, routes, create=create)
    except KafkaUnavailable as error:
        fail(str(error), NOT_FOUND)
    print_found(found.to_data(), as_json, lambda: tables.print_topics(console, found))
    raise typer.Exit(FAULTS if found.problems else OK)


def find(
    context: typer.Context,
    record: Annotated[str | None, typer.Argument(help="Coordinates: orders-3-1234.")] = None,
    topic: Annotated[str | None, typer.Option(help="With --key: a source topic.")] = None,
    key: Annotated[str | None, typer.Option(help="Every record with this key, as text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON; by key: a list.")] = False,
) -> None:
    """Say where one record stands for each handler: its fate, where it lies now, its attempts, its last failure.

    Example: bridge find orders-3-1234 --json
    """
    app, chosen, routes = loaded(context.obj, wrong=USAGE)
    if chosen.ledger_url is None:
        fail("fates are in the ledger, and the broker is no Redis: set LEDGER_URL.", NOT_FOUND)
    where = coordinates(record) if record is not None and not (topic or key) else None
    try:
        if record is None and topic is not None and key is not None:
            found = find_key(app, chosen, routes, topic, key)
        elif where is not None:
            found = find_record(app, chosen, routes, *where)
        else:
            fail("name a record by its coordinates (orders-3-1234), or by --topic and --key.", USAGE)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail(str(error), NOT_FOUND)
    for partition, first in found.looked_from.items():
        print(f"{topic}-{partition} was looked through from offset {first} on.", file=sys.stderr)
    if not found.data:
        fail(f"Kafka has no such record: {record or f'{topic}, key {key}'}.", FAULTS)
    print_found(found.data[0] if where else found.data, as_json, lambda: _print_lines(found.data))


def _print_lines(found: list[dict[str, Any]]) -> None:
    for line in lines(found):
        console.print(line, markup=False, soft_wrap=True)
