"""The API of inspection: status, counts, find, audits and the audit log."""

from typing import Final

from bridge.console import record_lookup
from bridge.console import record_lookup as find
from bridge.console.api import api_operation, letter_json
from bridge.console.api.api_operation import ApiRequest, OperationTable
from bridge.console.api.schemas import inspection_schema as shapes
from bridge.console.audit_cache import AuditCount
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import ScopeRule
from bridge.console.shown_record import mask_content, require_source_topic
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.accounts.activity_kinds import filter_for_reader
from bridge.deadletters.accounts.audit_log import describe_entry
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.model.letter_view import format_moment
from bridge.errors import DeskUnavailable, NoSuchLetter, NothingAnswers, RequestRefused
from bridge.inspection.record_content import read_record_content

operations: Final = OperationTable()

_SERVERS: Final = WaitKind.SERVERS
_AUDIT_LOG_LIST: Final = "trail"


@operations.declare("GET /status", may.VIEW, "getStatus", waits=WaitKind.STATUS, scope=ScopeRule.NARROWED)
def show_status(asked: ApiRequest) -> shapes.Status:
    """Return what the group consumes and how far, and what needs a person."""
    found = asked.console.status_cache.read()
    if found is None:
        raise NothingAnswers("The group's status is not known yet. Retry in a few seconds.")
    return shapes.Status.model_validate({**found.status, "asked_at": format_moment(found.at)})


@operations.declare("GET /stats", may.VIEW, "getStats", scope=ScopeRule.NARROWED)
def show_stats(asked: ApiRequest) -> shapes.Stats:
    """Return the counts of all letters."""
    return shapes.Stats.model_validate(asked.desk.totals.stats().to_data())


@operations.declare("GET /find", may.VIEW, "find", waits=_SERVERS, scope=ScopeRule.NARROWED)
def find_record(asked: ApiRequest, query: shapes.FindQuery) -> shapes.Found:
    """Return where a record is now."""
    text, desk = " ".join(query.q.split()), asked.desk
    wanted, answer = record_lookup.parse_lookup_query(text, desk.routes.topics), find.LookupAnswer()
    plan: int | None = None
    match wanted:
        case record_lookup.PlanQuery():
            plan = desk.plans.one(wanted.id).id
        case record_lookup.LetterQuery():
            try:
                answer.letters = [desk.letters.one(wanted.id).listed]
            except (NoSuchLetter, DeskUnavailable):
                find.look_up(desk, record_lookup.KeyQuery(None, text), answer, asked.masks)
        case _:
            find.look_up(desk, wanted, answer, asked.masks, record_lookup.read_below(query.below))
    letters = letter_json.write_letter_lines(asked, answer.letters)
    find.mask_lookup_answer(asked.lists, answer)
    return shapes.Found(
        records=list(answer.records),
        letters=letters,
        looked=answer.looked,
        silent=answer.silent,
        plan=plan,
        below=answer.below or None,
    )


@operations.declare(
    "GET /topics/{topic}/records/{partition:int}/{offset:int}",
    may.VIEW,
    "getRecord",
    waits=_SERVERS,
    scope=ScopeRule.TOPIC,
)
def show_record(asked: ApiRequest) -> shapes.Record:
    """Return any record of a source topic, read from Kafka."""
    topic, partition, offset = (asked.path[name] for name in ("topic", "partition", "offset"))
    require_source_topic(asked.desk, topic)
    found = read_record_content(asked.desk.settings, topic, partition, offset)
    masked = mask_content(asked.desk, asked.masks, found)
    return shapes.Record.model_validate(
        {
            "topic": topic,
            "partition": partition,
            "offset": str(offset),
            "timestamp": format_moment(found.timestamp),
            "key": letter_json.encode_octets(masked.key),
            "value": letter_json.encode_octets(masked.value),
            "format": masked.schema,
            "headers": [{"name": name, "value": letter_json.encode_octets(value)} for name, value in masked.headers],
            "masked": masked.parts,
            "fault": found.fault,
        }
    )


@operations.declare("GET /audit", may.VIEW, "listAudits", scope=ScopeRule.NARROWED)
def list_audits(asked: ApiRequest) -> shapes.Audits:
    """Return the last audit of each topic since this console started."""
    return shapes.Audits(items=[_describe_audit(each) for each in asked.console.audit_cache.all()])


@operations.declare("POST /audit/{topic}", may.COUNT_TOPICS, "audit", waits=_SERVERS, scope=ScopeRule.TOPIC)
def count_topic(asked: ApiRequest) -> shapes.Audit:
    """Count the fates of every offset of a topic now; it takes seconds."""
    if asked.desk.settings.ledger_url is None:
        # Not a temporary failure: after 503 clients would try again.
        raise RequestRefused("refused", "An audit reads the ledger, and the broker is no Redis: set LEDGER_URL.")
    return _describe_audit(asked.console.audit_cache.count(asked.path["topic"]))


@operations.declare("GET /trail", may.VIEW, "listTrail", scope=ScopeRule.NARROWED)
def list_audit_log(asked: ApiRequest, query: shapes.TrailQuery) -> shapes.Trail:
    """Return the audit log, newest first."""
    before = api_operation.read_number_cursor(_AUDIT_LOG_LIST, query.cursor)
    page = asked.desk.trail.page(build_entry_filter(asked, query), before, query.limit)
    items = [describe_entry(each) for each in page.entries]
    following = None if page.next is None else api_operation.write_cursor(_AUDIT_LOG_LIST, page.next)
    return shapes.Trail.model_validate({"items": items, "next": following})


def build_entry_filter(asked: ApiRequest, query: shapes.TrailQuery | shapes.TrailExport) -> EntryFilter:
    """Return the entries of the audit log that a program asks for, and may see."""
    wanted = EntryFilter(query.by.strip(), tuple(query.what))
    return filter_for_reader(wanted, asked.who.name, is_admin=asked.who.is_admin)


def _describe_audit(proof: AuditCount) -> shapes.Audit:
    return shapes.Audit.model_validate({**proof.audit.to_data(), "counted_at": format_moment(proof.at)})
