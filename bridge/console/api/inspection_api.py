"""The API of inspection: status, counts, find, audits and the audit log."""

from typing import Any

from bridge.console import record_lookup
from bridge.console import record_lookup as find
from bridge.console.api import api_request, letter_json
from bridge.console.api.api_request import ApiAnswer, ApiRequest
from bridge.console.api.schemas import inspection_schema as shapes
from bridge.console.audit_cache import AuditCount
from bridge.deadletters.model.letter_view import format_moment
from bridge.errors import DeskUnavailable, NoSuchLetter, NothingAnswers, RequestRefused

_AUDIT_LOG_LIST = "trail"


def show_status(asked: ApiRequest) -> ApiAnswer:
    """Return the status of the group: progress, state and problems."""
    found = asked.console.status_cache.read()
    if found is None:
        raise NothingAnswers("How the group stands is not known yet: ask again in a moment.")
    return ApiAnswer(shapes.Status.model_validate({**found.status, "asked_at": format_moment(found.at)}))


def show_stats(asked: ApiRequest) -> ApiAnswer:
    """Return the counts of letters."""
    return ApiAnswer(shapes.Stats.model_validate(asked.desk.totals.stats().to_data()))


def find_record(asked: ApiRequest) -> ApiAnswer:
    """Return the fates of a record or a key."""
    text, desk = " ".join(asked.query.q.split()), asked.desk
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
            find.look_up(desk, wanted, answer, asked.masks)
    letters = letter_json.write_letter_lines(asked, answer.letters)
    find.mask_lookup_answer(asked.lists, answer)
    return ApiAnswer(
        shapes.Found(
            records=list(answer.records), letters=letters, looked=answer.looked, silent=answer.silent, plan=plan
        )
    )


def list_audits(asked: ApiRequest) -> ApiAnswer:
    """Return the last audit of each topic."""
    return ApiAnswer(shapes.Audits(items=[_describe_audit(each) for each in asked.console.audit_cache.all()]))


def count_topic(asked: ApiRequest) -> ApiAnswer:
    """Audit a topic now."""
    if asked.desk.settings.ledger_url is None:
        # Not a temporary failure: after 503 clients would try again.
        raise RequestRefused("refused", "An audit reads the ledger, and the broker is no Redis: set LEDGER_URL.")
    return ApiAnswer(_describe_audit(asked.console.audit_cache.count(asked.path["topic"])))


def list_audit_log(asked: ApiRequest) -> ApiAnswer:
    """Return a page of the audit log."""
    query: shapes.TrailQuery = asked.query
    page = asked.desk.trail.page(
        query.by.strip(), query.what, api_request.read_number_cursor(_AUDIT_LOG_LIST, query.cursor), query.limit
    )
    items: list[dict[str, Any]] = [each._asdict() | {"at": format_moment(each.at)} for each in page.entries]
    following = None if page.next is None else api_request.write_cursor(_AUDIT_LOG_LIST, page.next)
    return ApiAnswer(shapes.Trail.model_validate({"items": items, "next": following}))


def _describe_audit(proof: AuditCount) -> shapes.Audit:
    return shapes.Audit.model_validate({**proof.audit.to_data(), "counted_at": format_moment(proof.at)})
