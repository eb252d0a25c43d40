"""The API of letters: list, show, check, edit and annotate; exports of letters and of the audit log."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

from bridge.console import bulk_actions
from bridge.console.api import api_request, letter_json, plans_api
from bridge.console.api.api_request import ApiAnswer, ApiRequest
from bridge.console.api.schemas import letters_schema as shapes
from bridge.console.api.schemas import plans_schema
from bridge.console.bulk_actions import check_bulk_size
from bridge.console.record_lookup import mask_last_errors
from bridge.deadletters.db.audit_table import AuditEntry
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.masking.value_mask import MASK
from bridge.deadletters.model.letter_filter import LetterCursor
from bridge.deadletters.model.letter_view import LetterView
from bridge.errors import EditRefused, RequestRefused
from bridge.inspection.record_search import find_sibling_deliveries as asked_elsewhere

_LIST = "letters"
#: The most letters that are checked in one request: 0.1 ms of a core each, and 0.1 to 0.2 ms a KB of values.
MAX_CHECKED_LETTERS = 10_000


def list_letters(asked: ApiRequest) -> ApiAnswer:
    """Return a page of the letters of a filter."""
    query: shapes.LettersQuery = asked.query
    before = None if query.cursor is None else LetterCursor.read(api_request.read_cursor(_LIST, query.cursor))
    page = asked.desk.letters.page(asked.masks.check(letter_json.read_body_filter(query)), query.limit, before)
    following = None if page.next is None else api_request.write_cursor(_LIST, page.next)
    return ApiAnswer(shapes.Page(items=letter_json.write_letter_lines(asked, page.letters), next=following))


def count_letters(asked: ApiRequest) -> ApiAnswer:
    """Return the number of letters of a filter."""
    count = asked.desk.letters.count(asked.masks.check(letter_json.read_body_filter(asked.query)))
    return ApiAnswer(shapes.Counted(count=count.number, exact=count.exact, among=count.among))


def show_letter(asked: ApiRequest) -> ApiAnswer:
    """Return a letter."""
    return ApiAnswer(letter_json.write_letter(asked, asked.desk.letters.one(asked.path["id"])))


def send_value(asked: ApiRequest) -> ApiAnswer:
    """Return the value of a letter, byte for byte."""
    found = letter_json.write_letter_value(asked, _read_with_value(asked), tokens=asked.query.tokens)
    if found is None:
        raise RequestRefused(
            "not-found",
            "This letter has no value here: it is a tombstone, or too large for the database (?kafka=true reads it "
            "from Kafka, while that has it).",
        )
    name = f'attachment; filename="letter-{asked.path["id"]}.bin"'
    return ApiAnswer(found, headers={"content-disposition": name})


def show_sibling_deliveries(asked: ApiRequest) -> ApiAnswer:
    """Return the fates of the same message for each handler."""
    desk, view = asked.desk, asked.masks.letter(asked.desk.letters.one(asked.path["id"]))
    it = view.letter.listed
    found = asked_elsewhere(desk.app, desk.settings, desk.routes, it.origin, it.topic, it.partition, it.offset)
    if isinstance(found, str):
        return ApiAnswer(shapes.Elsewhere(deliveries=[], unknown=found))
    return ApiAnswer(shapes.Elsewhere(deliveries=mask_last_errors(found, view.quotes), unknown=None))


def check_value(asked: ApiRequest) -> ApiAnswer:
    """Return the handler's verdict on another value."""
    editing = asked.desk.editing(asked.masks)
    said, difference = editing.judged(asked.path["id"], _decode_value(asked.body.value))
    return ApiAnswer(shapes.Verdict(ok=said.ok, why=said.why, upgraded=said.upgraded, difference=difference))


def check_letters(asked: ApiRequest) -> ApiAnswer:
    """Return the handlers' verdicts on the values of many letters."""
    wanted = asked.masks.check(letter_json.read_body_filter(asked.body.letters))
    check_bulk_size(asked.desk, wanted, MAX_CHECKED_LETTERS, "checked")
    found = asked.desk.mending.check(wanted).to_data()
    if asked.masks:
        # A reason is kept without its letter, and handlers may quote values that the caller may not see.
        for reasons in ("invalid_reasons", "unknown_reasons"):
            found[reasons] = [each | {"why": MASK} for each in found[reasons]]
    return ApiAnswer(plans_schema.Checked.model_validate(found))


def plan_edit(asked: ApiRequest) -> ApiAnswer:
    """Make a plan that replays a letter with another value."""
    body: shapes.Editing = asked.body
    why = body.why.strip()
    if body.force and not why:
        raise RequestRefused("refused", "What does not validate is sent only with a reason: say why. Nothing was sent.")
    id_, editing = asked.path["id"], asked.desk.editing(asked.masks)
    try:
        value = editing.filled(id_, _decode_value(body.value))
        plan = editing.edit(id_, value, asked.who.name, why, force=body.force)
    except EditRefused as error:
        raise RequestRefused("refused", str(error).replace("--force", '"force": true')) from None
    return plans_api.answer_made_plan(asked, plan.id)


def repeat_edit(asked: ApiRequest, done: AuditEntry) -> ApiAnswer:
    """Return the plan that was made."""
    return plans_api.answer_made_plan(asked, done.plan_id or 0)


def note_on_letter(asked: ApiRequest) -> ApiAnswer:
    """Add a note to a letter."""
    asked.desk.notes.on_letters([asked.path["id"]], _require_note(asked), asked.who.name)
    return _answer_notes(asked)


def repeat_note(asked: ApiRequest, _done: AuditEntry) -> ApiAnswer:
    """Return the notes of the letter."""
    return _answer_notes(asked)


def reopen(asked: ApiRequest) -> ApiAnswer:
    """Reopen a letter whose replay did not run."""
    return _ended(asked, asked.desk.unknown_ends.reopen)


def resolve(asked: ApiRequest) -> ApiAnswer:
    """Resolve a letter whose replay ran."""
    return _ended(asked, asked.desk.unknown_ends.resolve)


def ended(asked: ApiRequest, _done: AuditEntry) -> ApiAnswer:
    """Return the letter as it is after that."""
    return show_letter(asked)


def _ended(asked: ApiRequest, end: Callable[[Sequence[int], int | None, str, str], list[int]]) -> ApiAnswer:
    id_, why = asked.path["id"], str(asked.body.why).strip()
    if not why:
        raise RequestRefused("refused", "Say how you know it. Nothing was changed.")
    it = asked.desk.letters.one(id_).listed
    if not end([id_], None, why, asked.who.name):
        raise RequestRefused(
            "refused", f"Letter {id_} is {it.status}, and how its replay ended is not unknown. Nothing was changed."
        )
    return show_letter(asked)


def _read_with_value(asked: ApiRequest) -> LetterView:
    letter = asked.desk.letters.one(asked.path["id"])
    return fetch_letter_value(asked.desk.settings, letter) if asked.query.kafka else letter


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


def _require_note(asked: ApiRequest) -> str:
    said = str(asked.body.said).strip()
    if not said:
        raise RequestRefused("refused", "A note has words: nothing was noted.")
    return said


def _answer_notes(asked: ApiRequest) -> ApiAnswer:
    letter = asked.desk.letters.one(asked.path["id"])
    return ApiAnswer(shapes.Notes.model_validate({"items": [act.to_data() for act in letter.trail]}))


def export_letters(asked: ApiRequest) -> ApiAnswer:
    """Return the letters of a filter as `bridge deadletters export` writes them, masked for the caller."""
    wanted = asked.masks.check(letter_json.read_body_filter(asked.query))
    lines = bulk_actions.stream_letters(asked.desk, asked.masks, asked.who.name, wanted)
    return ApiAnswer(lines, headers=bulk_actions.build_download_headers("letters.jsonl"))


def export_audit_log(asked: ApiRequest) -> ApiAnswer:
    """Return the audit log, newest first."""
    query = asked.query
    lines = bulk_actions.start_stream(asked.desk.trail.lines(asked.who.name, query.by.strip(), query.what))
    return ApiAnswer(lines, headers=bulk_actions.build_download_headers("trail.jsonl"))
