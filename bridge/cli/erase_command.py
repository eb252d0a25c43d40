"""The command erase: a person's data, found in all places, erased, and certified."""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.command_io import (
    BAD,
    FAULTS,
    console,
    error_console,
    fail,
    fail_unavailable,
    print_result,
    require_terminal,
)
from bridge.cli.command_options import ByOption, YesOption, require_why
from bridge.cli.deadletters.desk_access import open_desk, require_extra
from bridge.errors import HandoffFailed, NotDecided
from bridge.formats.text_forms import format_count
from bridge.inspection.terminal_output import print_line
from bridge.inspection.topic_audit import audit_topic

if TYPE_CHECKING:
    from rich.console import Console

    from bridge.deadletters.dead_letter_service import DeadLetterService
    from bridge.deadletters.model.erasure_certificate import ErasureCertificate, ErasureFinding


class OpenChoice(StrEnum):
    """The choice for deliveries that have not ended."""

    REFUSE = "refuse"
    DISCARD = "discard"


def erase(
    context: typer.Context,
    key: Annotated[list[str] | None, typer.Option(help="A record key of the person: text, 0x… or base64:….")] = None,
    field: Annotated[
        list[str] | None, typer.Option(help="A field of the person's records: value.customer.id=4711.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="A text that names the person, such as a mail address: erased where texts quote it."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only records of this source topic.")] = None,
    open_: Annotated[
        OpenChoice,
        typer.Option("--open", help="Refuse the command if deliveries have not ended, or discard them."),
    ] = OpenChoice.REFUSE,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only print what there is and what would remain.")] = False,
    yes: YesOption = False,
    why: Annotated[
        str, typer.Option("--why", callback=require_why, help="The reason, for the audit log: without personal data.")
    ] = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Erase a person from all that the bridge stores, and print a certificate of what remains where, and how long.

    A record is the person's if its key or a field of its value says so. The command searches the source topics, retry,
    replay and dead-letter topics, the Celery queue in Redis, the dead letters' database with notes, errors and reasons,
    and the archive files. It deletes what it may: letters, queued messages, notes, archived letters, and the begin of
    the bridge's own topics, if all records before are settled. It then has database and Redis write their files anew,
    during which other processes wait. Source topics are yours: the certificate says until when Kafka keeps the records.

    Deliveries that have not ended refuse the command. With --open discard they are discarded: no handler runs for them.
    The audit log names the person by a salted digest. Run the command again if the certificate says so, and after you
    restored a backup.

    Example: bridge erase --key 4711 --text ann@example.com --why "request 2026-17" --plan
    """
    require_extra()
    require_terminal(yes or plan_only)
    from bridge.deadletters.model import filter_syntax
    from bridge.deadletters.model.erasure_subject import ErasureSubject, parse_subject_field

    with open_desk(context) as desk:
        if strange := [name for name in topic or () if name not in desk.routes.topics]:
            fail(f"no handler names topic {strange[0]!r}. Topics: {', '.join(desk.routes.topics)}.", FAULTS)
        subject = ErasureSubject(
            tuple(map(filter_syntax.parse_key, key or ())),
            tuple(map(parse_subject_field, field or ())),
            tuple(text or ()),
            tuple(topic or ()),
        )
        try:
            erasure = desk.erasure(subject)
            found = erasure.find(_print_search)
            certificate = erasure.certify(found, by, why)
            if not plan_only:
                if not yes:
                    _print_certificate(error_console, certificate)
                    if not typer.confirm("erase this for good?", err=True):
                        fail("Nothing was erased.", FAULTS)
                certificate = erasure.erase(found, by, why, discard_open=open_ is OpenChoice.DISCARD)
                certificate = _with_audit(desk, certificate)
        except (HandoffFailed, NotDecided) as error:
            fail_unavailable(error)
    print_result(certificate.to_data(), as_json, lambda: _print_certificate(console, certificate))
    if certificate.is_due and not plan_only:
        raise typer.Exit(BAD)


def _print_search(topic: str, records: int) -> None:
    """Print which topic is searched, on a terminal: a large one takes a while."""
    if error_console.is_terminal:
        print_line(error_console, f"searching topic {topic}: about {format_count(records, 'record')}", "dim")


def _with_audit(desk: "DeadLetterService", certificate: "ErasureCertificate") -> "ErasureCertificate":
    """Return the certificate with what the audit of each topic counts after the erasure."""
    audit = {}
    for topic in desk.routes.topics if desk.settings.ledger_url is not None else ():
        found = audit_topic(desk.app, desk.settings, desk.routes, topic)
        audit[topic] = {"clean": found.clean, "unaccounted": found.totals["unaccounted"]}
    return replace(certificate, audit=audit)


def _print_certificate(to: "Console", certificate: "ErasureCertificate") -> None:
    what = "plan: nothing is erased yet" if certificate.is_plan else "erased"
    print_line(to, f"person {certificate.subject}, {what}, by {certificate.by}: {certificate.why}")
    for finding in certificate.findings:
        _print_finding(to, certificate, finding)
    for delivery in certificate.unended:
        print_line(to, f"  has not ended: {delivery}", "yellow")
    if certificate.unended:
        print_line(to, "  wait until these are done, or give them up with --open discard", "yellow")
    for topic, audit in certificate.audit.items():
        print_line(to, f"audit of {topic}: {audit['unaccounted']} unaccounted{'' if audit['clean'] else ', not clean'}")
    for entry in certificate.earlier:
        print_line(to, f"audit log: {entry}")
    if certificate.is_due and not certificate.is_plan:
        print_line(to, "Not all of it could be erased yet: run the command again, as said above.", "yellow")


def _print_finding(to: "Console", certificate: "ErasureCertificate", finding: "ErasureFinding") -> None:
    if finding.found is None:
        print_line(to, f"{finding.name}: {finding.remains}")
        return
    erased = "" if certificate.is_plan or not finding.found else f", {finding.erased:,} erased"
    print_line(to, f"{finding.name}: {format_count(finding.found, finding.unit)} found{erased}")
    if finding.remains:
        print_line(to, f"    remains: {finding.remains}")
