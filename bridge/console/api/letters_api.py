"""The API of letters: list, show, check, edit and annotate; exports of letters and of the audit log."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final

from bridge.console import bulk_actions, record_lookup
from bridge.console.api import api_operation, inspection_api, letter_json, plans_api
from bridge.console.api.api_operation import NDJSON, ApiRequest, Download, Effect, OperationTable
from bridge.console.api.schemas import inspection_schema, plans_schema
from bridge.console.api.schemas import letters_schema as shapes
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import ScopeRule
from bridge.console.bulk_actions import check_bulk_size
from bridge.console.record_lookup import mask_last_errors
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.masking.value_mask import MASK
from bridge.deadletters.model.letter_filter import LetterCursor
from bridge.deadletters.model.letter_view import LetterView
from bridge.errors import EditRefused, RequestRefused
from bridge.inspection.record_search import find_sibling_deliveries as asked_elsewhere

operations: Final = OperationTable()

_SERVERS: Final = WaitKind.SERVERS
_LIST: Final = "letters"
#: The most letters that are checked in one request: 0.1 ms of a core each, and 0.1 to 0.2 ms a KB of values.
MAX_CHECKED_LETTERS = 10_000


@operations.declare("GET /letters", may.VIEW, "listLetters", scope=ScopeRule.NARROWED)
def list_letters(asked: ApiRequest, query: shapes.LettersQuery) -> shapes.Page:
    """Return the letters of a filter, newest first."""
    before = None if query.cursor is None else LetterCursor.read(api_operation.read_cursor(_LIST, query.cursor))
    page = asked.desk.letters.page(asked.masks.check(letter_json.read_body_filter(query)), query.limit, before)
    following = None if page.next is None else api_operation.write_cursor(_LIST, page.next)
    return shapes.Page(items=letter_json.write_letter_lines(asked, page.letters), next=following, unread=page.unread)


@operations.declare("GET /letters/count", may.VIEW, "countLetters", scope=ScopeRule.NARROWED)
def count_letters(asked: ApiRequest, query: shapes.Filter) -> shapes.Counted:
    """Return how many letters a filter means."""
    count = asked.desk.letters.count(asked.masks.check(letter_json.read_body_filter(query)))
    return shapes.Counted(count=count.number, exact=count.exact, among=count.among)


@operations.declare("GET /letters/{id:int}", may.VIEW, "getLetter", scope=ScopeRule.NARROWED)
def show_letter(asked: ApiRequest) -> shapes.Letter:
    """Return a letter with all that is known of it."""
    return letter_json.write_letter(asked, asked.desk.letters.one(asked.path["id"]))


@operations.declare("GET /letters/{id:int}/value", may.VIEW, "getValue", waits=_SERVERS, scope=ScopeRule.NARROWED)
def send_value(asked: ApiRequest, query: shapes.ValueQuery) -> Download:
    """Return a letter's value, byte for byte."""
    found = letter_json.write_letter_value(asked, _read_with_value(asked, query), tokens=query.tokens)
    if found is None:
        raise RequestRefused(
            "not-found",
            "This letter has no value here: it is a tombstone, or too large for the database (?kafka=true reads it "
            "from Kafka, while that has it).",
        )
    return Download(found, f"letter-{asked.path['id']}.bin")


@operations.declare(
    "GET /letters/{id:int}/elsewhere", may.VIEW, "getElsewhere", waits=_SERVERS, scope=ScopeRule.NARROWED
)
def show_sibling_deliveries(asked: ApiRequest) -> shapes.Elsewhere:
    """Return the fates of the same message for each handler; Kafka and the ledger are read."""
    desk, view = asked.desk, asked.masks.letter(asked.desk.letters.one(asked.path["id"]))
    it = view.letter.listed
    if fault := record_lookup.find_scope_fault(desk, it.topic):
        return shapes.Elsewhere(deliveries=[], unknown=fault)
    found = asked_elsewhere(desk.app, desk.settings, desk.routes, it.origin, it.topic, it.partition, it.offset)
    if isinstance(found, str):
        return shapes.Elsewhere(deliveries=[], unknown=found)
    return shapes.Elsewhere(deliveries=mask_last_errors(found, view.quotes), unknown=None)


@operations.declare("POST /letters/{id:int}/check", may.EDIT_LETTER, "checkValue", scope=ScopeRule.NARROWED)
def check_value(asked: ApiRequest, body: shapes.Check) -> shapes.Verdict:
    """Return what a letter's handler says of another value."""
    editing = asked.desk.editing(asked.masks)
    said, difference = editing.judged(asked.path["id"], _decode_value(body.value))
    return shapes.Verdict(ok=said.ok, why=said.why, upgraded=said.upgraded, difference=difference)


@operations.declare("POST /letters/check", may.EDIT_LETTER, "checkLetters", scope=ScopeRule.NARROWED)
def check_letters(asked: ApiRequest, body: plans_schema.Checking) -> plans_schema.Checked:
    """Return which of at most 10,000 letters their handlers would take now, as they are or after their `upgrade`."""
    wanted = asked.masks.check(letter_json.read_body_filter(body.letters))
    check_bulk_size(asked.desk, wanted, MAX_CHECKED_LETTERS, "checked")
    found = asked.desk.mending.check(wanted).to_data()
    if asked.masks:
        # A reason is kept without its letter, and handlers may quote values that the caller may not see.
        for reasons in ("invalid_reasons", "unknown_reasons"):
            found[reasons] = [each | {"why": MASK} for each in found[reasons]]
    return plans_schema.Checked.model_validate(found)


@operations.declare(
    "POST /letters/{id:int}/edit",
    may.EDIT_LETTER,
    "editLetter",
    Effect(plans_api.show_made_plan),
    status=201,
    scope=ScopeRule.NARROWED,
)
def plan_edit(asked: ApiRequest, body: shapes.Editing) -> plans_schema.OnePlan:
    """Make a plan that sends a letter back with another value; nothing is sent before the plan is applied."""
    why = body.why.strip()
    if body.force and not why:
        raise RequestRefused(
            "refused", "A value that does not validate is sent only with a reason: say why. Nothing was sent."
        )
    id_, editing = asked.path["id"], asked.desk.editing(asked.masks)
    try:
        value = editing.filled(id_, _decode_value(body.value))
        plan = editing.edit(id_, value, asked.who.name, why, force=body.force)
    except EditRefused as error:
        raise RequestRefused("refused", str(error).replace("--force", '"force": true')) from None
    return plans_api.describe_plan(asked, plan.id)


def list_notes(asked: ApiRequest) -> shapes.Notes:
    """Return the notes on a letter."""
    letter = asked.desk.letters.one(asked.path["id"])
    return shapes.Notes.model_validate({"items": [act.to_data() for act in letter.trail]})


@operations.declare(
    "POST /letters/{id:int}/notes", may.WRITE_NOTE, "noteOnLetter", Effect(list_notes), scope=ScopeRule.NARROWED
)
def note_on_letter(asked: ApiRequest, body: shapes.Noting) -> shapes.Notes:
    """Add a note to a letter."""
    asked.desk.notes.on_letters([asked.path["id"]], _require_note(body.said), asked.who.name)
    return list_notes(asked)


@operations.declare(
    "POST /letters/{id:int}/reopen", may.REOPEN_LETTER, "reopenLetter", Effect(show_letter), scope=ScopeRule.NARROWED
)
def reopen(asked: ApiRequest, body: inspection_schema.Deciding) -> shapes.Letter:
    """Open a letter whose replay has an unknown end, since it did not run."""
    return _end(asked, body, asked.desk.unknown_ends.reopen)


@operations.declare(
    "POST /letters/{id:int}/resolve", may.RESOLVE_LETTER, "resolveLetter", Effect(show_letter), scope=ScopeRule.NARROWED
)
def resolve(asked: ApiRequest, body: inspection_schema.Deciding) -> shapes.Letter:
    """Resolve a letter whose replay has an unknown end, since it ran."""
    return _end(asked, body, asked.desk.unknown_ends.resolve)


def _end(
    asked: ApiRequest, body: inspection_schema.Deciding, end: Callable[[Sequence[int], int | None, str, str], list[int]]
) -> shapes.Letter:
    id_, why = asked.path["id"], body.why.strip()
    if not why:
        raise RequestRefused("refused", "Say how you know it. Nothing was changed.")
    it = asked.desk.letters.one(id_).listed
    if not end([id_], None, why, asked.who.name):
        raise RequestRefused(
            "refused", f"Letter {id_} is {it.status}, and how its replay ended is not unknown. Nothing was changed."
        )
    return show_letter(asked)


def _read_with_value(asked: ApiRequest, query: shapes.ValueQuery) -> LetterView:
    letter = asked.desk.letters.one(asked.path["id"])
    if not query.kafka:
        return letter
    return asked.desk.database.payloads.read_letter(fetch_letter_value(asked.desk.settings, letter))


def _decode_value(value: shapes.NewValue | None) -> bytes | None:
    if value is None:
        return None
    if value.encoding == "utf-8":
        return value.data.encode()
    try:
        return b64decode(value.data, validate=True)
    except (ValueError, binascii.Error):
        fault: dict[str, Any] = {"where": "body.value.data", "what": "is no base64"}
        raise RequestRefused("invalid", "body.value.data is no base64.", errors=[fault]) from None


def _require_note(said: str) -> str:
    said = said.strip()
    if not said:
        raise RequestRefused("refused", "The note is empty. Nothing was changed.")
    return said


@operations.declare("GET /letters/export", may.EXPORT, "exportLetters", media=NDJSON, scope=ScopeRule.NARROWED)
def export_letters(asked: ApiRequest, query: shapes.Filter) -> Download:
    """Return letters as lines of JSON, oldest first, as `bridge deadletters export` writes them.

    `bridge deadletters import` reads those that are not masked.
    """
    wanted = asked.masks.check(letter_json.read_body_filter(query))
    lines = bulk_actions.stream_letters(asked.desk, asked.masks, asked.who.name, wanted)
    return Download(lines, "letters.jsonl")


@operations.declare("GET /trail/export", may.EXPORT, "exportTrail", media=NDJSON, scope=ScopeRule.NARROWED)
def export_audit_log(asked: ApiRequest, query: inspection_schema.TrailExport) -> Download:
    """Return the whole audit log as lines of JSON, newest first."""
    wanted = inspection_api.build_entry_filter(asked, query)
    lines = bulk_actions.start_stream(asked.desk.trail.lines(asked.who.name, wanted))
    return Download(lines, "trail.jsonl")
