"""The commands that inspect: check, audit, status, topics (with --create it makes own topics) and find."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from celery import Celery

from bridge.cli.command_io import FAULTS, NOT_FOUND, OK, USAGE, console, fail, fail_unavailable, load_app, print_result
from bridge.cli.deadletters.desk_access import find_missing_library
from bridge.errors import (
    AppNotFound,
    KafkaUnavailable,
    LedgerUnavailable,
    NoMoment,
    NoSuchRecord,
    NothingAnswers,
    UnknownTopic,
    how_to_install,
)
from bridge.formats.text_forms import make_printable
from bridge.handler_routes import Routes
from bridge.inspection import report_tables
from bridge.inspection.record_content import RecordContent, format_content, make_content_data, read_record_content
from bridge.inspection.record_search import (
    SearchResult,
    describe_unread,
    find_record,
    find_records_at_time,
    find_records_by_key,
    format_result,
    parse_coordinates,
)
from bridge.inspection.setup_check import CheckFinding, check_setup
from bridge.inspection.status import read_status
from bridge.inspection.status_report import add_problems
from bridge.inspection.terminal_output import LINE_BREAK
from bridge.inspection.topic_audit import audit_topic
from bridge.inspection.topic_list import list_topics
from bridge.problems.problem import Problem
from bridge.settings import Settings
from bridge.settings.app_discovery import find_celery_app


def list_desk_problems(settings: Settings, routes: Routes, kafka_answers: bool = True) -> list[Problem]:
    """Return the problems of dead letters; none if nothing was recorded here, or the libraries are not installed."""
    if find_missing_library() is not None or _lacks_database_file(settings.environment.DEADLETTERS_DATABASE_URL):
        return []
    # SQLAlchemy is a third of the command's time: only a database needs it.
    from bridge.deadletters.alarms.dead_letter_problems import find_dead_letter_problems

    return find_dead_letter_problems(settings, routes, kafka_answers=kafka_answers)


def _lacks_database_file(url: str) -> bool:
    """Return whether an address is that of a SQLite file that does not exist; addresses with options are not read."""
    file = url.removeprefix("sqlite:///")
    return file != url and "?" not in file and not Path(file).exists()


def check_desk_database(environ: Mapping[str, str] = os.environ) -> list[CheckFinding]:
    """Return a finding on the dead letters' database; none if no database is configured."""
    if not (url := environ.get("DEADLETTERS_DATABASE_URL", "")):
        return []
    if (library := find_missing_library()) is not None:
        needs = f"DEADLETTERS_DATABASE_URL is set, and the dead-letter store needs {library}"
        return [CheckFinding("warning", f"{needs}; {how_to_install('deadletters')}.")]
    from bridge.deadletters.alarms.dead_letter_problems import check_database, check_webhook_secrets

    checks = [check_database(url), *check_webhook_secrets(url, environ.get("DEADLETTERS_SECRET_KEY", ""))]
    return [CheckFinding(check.level, check.text) for check in checks]


def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {level, text}.")] = False,
) -> None:
    """Check settings, handlers and connections, and list every fault.

    Example: bridge check --json
    """
    try:
        findings = check_setup(find_celery_app(context.obj), name=context.obj)
    except AppNotFound as error:
        findings = [CheckFinding("fault", str(error))]
    findings += check_desk_database()
    print_result(
        [finding.to_data() for finding in findings], as_json, lambda: report_tables.print_findings(console, findings)
    )
    raise typer.Exit(FAULTS if any(finding.level == "fault" for finding in findings) else OK)


def audit(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Count every offset's fate in a topic, and name the offsets that it cannot account for.

    Example: bridge audit orders --json
    """
    app, chosen, routes = load_app(context.obj, wrong=USAGE)
    if chosen.ledger_url is None:
        fail("there is no ledger, because the broker is no Redis: set LEDGER_URL.", NOT_FOUND)
    try:
        report = audit_topic(app, chosen, routes, topic)
    except UnknownTopic as error:
        fail(str(error), USAGE)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail_unavailable(error)
    print_result(report.to_data(), as_json, lambda: report_tables.print_audit(console, report))
    raise typer.Exit(OK if report.clean else FAULTS if report.has_losses else NOT_FOUND)


def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Show the problems first; then topics with their lag, queues, bridges and workers of the group.

    Example: bridge status --json
    """
    app, chosen, routes = load_app(context.obj)
    try:
        report = read_status(app, chosen, routes)
    except NothingAnswers as error:
        fail(str(error), NOT_FOUND)
    report = add_problems(report, list_desk_problems(chosen, routes, report["topics"] is not None))
    print_result(report, as_json, lambda: report_tables.print_status(console, report))


def topics(
    context: typer.Context,
    create: Annotated[bool, typer.Option("--create", help="Create missing topics, but no source topics.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list with an object for each topic.")] = False,
) -> None:
    """List the topics of the group: purpose, use, partitions, retention and unsettled records.

    Example: bridge topics --create
    """
    app, chosen, routes = load_app(context.obj, wrong=USAGE)
    try:
        found = list_topics(app, chosen, routes, create=create)
    except KafkaUnavailable as error:
        fail_unavailable(error)
    print_result(found.to_data(), as_json, lambda: report_tables.print_topics(console, found))
    raise typer.Exit(FAULTS if found.problems else OK)


def find(
    context: typer.Context,
    record: Annotated[str | None, typer.Argument(help="The coordinates of a record: orders-3-1234.")] = None,
    topic: Annotated[str | None, typer.Option(help="A source topic, with --key or --at.")] = None,
    key: Annotated[str | None, typer.Option(help="The key, as text: find every record with it.")] = None,
    at: Annotated[
        str | None, typer.Option(help="A time (2026-01-31T12:00): the first record of each partition from then on.")
    ] = None,
    value: Annotated[
        bool, typer.Option("--value", help="Print value, key and headers of the record too, read from Kafka.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record as JSON; with --key or --at a list.")
    ] = False,
) -> None:
    """Show where a record is for each handler: its fate, its location, its attempts and its last error.

    Example: bridge find orders-3-1234 --value --json
    """
    app, chosen, routes = load_app(context.obj, wrong=USAGE)
    where = parse_coordinates(record) if record is not None and not (topic or key or at) else None
    if chosen.ledger_url is None:
        if where is not None and value:
            _print_content_alone(chosen, where, as_json)
            return
        fail("there is no ledger, because the broker is no Redis: set LEDGER_URL.", NOT_FOUND)
    try:
        if where is not None:
            result = find_record(app, chosen, routes, *where)
        elif record is None and topic is not None and (key is None) != (at is None):
            result = _find_in_topic(app, chosen, routes, topic, key, at)
        else:
            fail("name a record by its coordinates (orders-3-1234), or by --topic with --key or --at.", USAGE)
    except NoMoment as error:
        fail(str(error), USAGE)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail_unavailable(error)
    for partition, first in result.looked_from.items():
        print(f"{topic}-{partition} was searched from offset {first} on.", file=sys.stderr)
    if not result.data:
        _fail_without_record(chosen, result, where, f"{topic}, {key or at}")
    contents = _read_contents(chosen, result.data) if value else {}
    shown = [{**each, **_describe_content(contents.get(_place_of(each)))} for each in result.data]
    print_result(shown[0] if where else shown, as_json, lambda: _print_record_lines(result.data, contents))
    if result.unreadable:
        fail(describe_unread(result), NOT_FOUND)


def _print_content_alone(settings: Settings, where: tuple[str, int, int], as_json: bool) -> None:
    """Print a record with its content where no ledger knows its deliveries."""
    print("there is no ledger, because the broker is no Redis: its deliveries are not known.", file=sys.stderr)
    found = [{"record": dict(zip(("topic", "partition", "offset"), where, strict=True))}]
    contents = _read_contents(settings, found)
    if where not in contents:
        raise typer.Exit(FAULTS)
    content = contents[where][0]
    key = None if content.key is None else content.key.decode("utf-8", "backslashreplace")
    record = {**found[0]["record"], "key": key, "timestamp": content.timestamp}
    shown: dict[str, Any] = {"record": record, "halted": None, "deliveries": []}
    data = {**shown, **_describe_content(contents[where])}
    print_result(data, as_json, lambda: _print_record_lines([shown], contents))


def _find_in_topic(
    app: Celery, settings: Settings, routes: Routes, topic: str, key: str | None, at: str | None
) -> SearchResult:
    if key is not None:
        return find_records_by_key(app, settings, routes, topic, key)
    return find_records_at_time(app, settings, routes, topic, at or "")


def _fail_without_record(
    settings: Settings, result: SearchResult, where: tuple[str, int, int] | None, named: str
) -> NoReturn:
    """Exit with the reason why nothing was found."""
    if result.unreadable:
        fail(describe_unread(result), NOT_FOUND)
    if where is not None:
        try:
            read_record_content(settings, *where)
        except NoSuchRecord as error:
            fail(f"Kafka has no such record: {error}", FAULTS)
        except KafkaUnavailable as error:
            fail_unavailable(error)
    fail(f"Kafka has no such record: {named}.", FAULTS)


#: The contents of records by their coordinates, each with the value for people and its schema.
_Contents = dict[tuple[str, int, int], tuple[RecordContent, bytes | None, str]]


def _place_of(found: Mapping[str, Any]) -> tuple[str, int, int]:
    record = found["record"]
    return record["topic"], record["partition"], record["offset"]


def _read_contents(settings: Settings, records: list[dict[str, Any]]) -> _Contents:
    """Return the contents of records; those that Kafka does not give any more are left out, and it says why."""
    # The codec of schemas is part of the dead-letter store, whose imports cost time.
    from bridge.deadletters.model.payload_codec import PayloadCodec

    payloads, found = PayloadCodec.from_options(settings.registry), _Contents()
    try:
        for place in map(_place_of, records):
            try:
                content = read_record_content(settings, *place)
            except NoSuchRecord as error:
                print(error, file=sys.stderr)
                continue
            read = payloads.read(content.value, content.headers)
            found[place] = (content, read.value, read.schema)
    except KafkaUnavailable as error:
        fail_unavailable(error)
    finally:
        payloads.close()
    return found


def _describe_content(found: tuple[RecordContent, bytes | None, str] | None) -> dict[str, Any]:
    return {} if found is None else {"content": make_content_data(*found)}


def _print_record_lines(records: list[dict[str, Any]], contents: _Contents) -> None:
    for record in records:
        for line in format_result([record]):
            console.print(line, markup=False, soft_wrap=True)
        if (content := contents.get(_place_of(record))) is not None:
            for line in format_content(*content):
                console.print(make_printable(line, keep=LINE_BREAK), markup=False, soft_wrap=True)
