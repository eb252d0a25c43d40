"""The pages of letters: the list by a filter, its export, and one letter with all its details."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from bridge.console import bulk_actions, console, filter_address, record_lookup
from bridge.console.auth import permissions as may
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.console.pages.form_submission import MAX_NOTE, answer_done, check_length, require_why, submit_once
from bridge.console.pages.payload_panel import address_key_letters, build_payload_panel, list_header_rows
from bridge.console.pages.saved_view_forms import list_view_links
from bridge.console.record_lookup import mask_last_errors
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.handler_check import HandlerVerdict
from bridge.deadletters.editing.value_diff import diff_values
from bridge.deadletters.inspection.advice import LOOK_AT_LETTER, advise_on_letter
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.masking.letter_mask import LetterMasks, MaskedView
from bridge.deadletters.model.letter_filter import ALL_LETTERS, FILTER_FIELDS, LetterCursor, LetterFilter
from bridge.deadletters.model.letter_view import (
    LetterAct,
    LetterFailure,
    LetterLine,
    LetterPage,
    LetterView,
    build_timeline,
)
from bridge.deadletters.model.payload_view import find_quoted_text
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.model.traceback_parts import split_traceback
from bridge.deadletters.model.value_match import describe_unread
from bridge.errors import FilterFault, KafkaUnavailable
from bridge.inspection.record_search import find_sibling_deliveries

#: The choices for the rows of a page, the default first.
LIST_ROWS: Final = (50, 25, 100)
#: The most handlers that are offered as choices.
MAX_OFFERED_HANDLERS: Final = 200
#: The most new letters that are counted.
MAX_NEW_LETTERS: Final = 100


def list_letters(request: Request) -> Response:
    """List a page of letters, newest first; open ones only, if the address names no status."""
    here, query = console.get_console(request), filter_address.spell_dotted_fields(request.query_params)
    try:
        chosen = console.get_masks(request).check(filter_address.read_filter(filter_address.add_open_status(query)))
    except FilterFault as error:
        return here.page(request, "filter-error.html", 400, message=str(error), **_build_filter_form(here, query))
    form = _build_filter_form(here, query)
    rows = form["rows"]
    before, after = (LetterCursor.read(query[name]) if query.get(name) else None for name in ("before", "after"))
    page = here.desk.letters.newer(chosen, rows, after) if after else here.desk.letters.page(chosen, rows, before)
    if after and page.next is None and len(page.letters) < rows:
        # The newest page, in full.
        return RedirectResponse(filter_address.build_address("/letters", query, **filter_address.PAGE_PARAMETERS), 303)
    newer, older = _build_neighbour_pages(query, page, before, after)
    return here.page(
        request,
        "letters.html",
        not_recorded=here.recorders().said(),
        letters=here.desk.lists(console.get_masks(request)).lines(page.letters),
        count=here.desk.letters.count(chosen),
        unread=describe_unread(page.unread) if page.unread else "",
        given=chosen,
        fields=filter_address.list_filter_fields(filter_address.add_open_status(query)),
        chips=filter_address.list_filter_chips("/letters", filter_address.add_open_status(query)),
        times=filter_address.list_time_presets("/letters", query),
        views=list_view_links(request, query),
        newer=newer,
        older=older,
        live=None if before or after or not page.letters else _build_stream_name(query, build_cursor(page.letters[0])),
        kept=filter_address.build_address(
            "", filter_address.add_open_status(query), rows="", **filter_address.PAGE_PARAMETERS
        ),
        sizes=[
            (size, filter_address.build_address("/letters", query, rows=str(size), **filter_address.PAGE_PARAMETERS))
            for size in sorted(LIST_ROWS)
        ],
        same=_list_same_columns(chosen),
        absence=None if page.letters else _explain_absence(here.desk, chosen),
        acts=console.get_principal(request).role >= may.MAKE_PLAN,
        command=filter_address.build_command("list", filter_address.add_open_status(query)),
        **form,
    )


def _build_filter_form(here: Console, query: QueryParams) -> dict[str, Any]:
    """Return the values and the choices of the filter form."""
    handlers = here.desk.routes.handlers
    offered = sorted(handlers) if len(handlers) <= MAX_OFFERED_HANDLERS else ()
    rows = next((size for size in LIST_ROWS if str(size) == query.get("rows")), LIST_ROWS[0])
    return {"query": query, "rows": rows, "handlers": offered, "fields_of_filter": FILTER_FIELDS}


def export_letters(request: Request) -> Response:
    """Export the letters that a form means as a file; by a form, since the audit log has every export."""
    here, masks = console.get_console(request), console.get_masks(request)
    wanted = masks.check(filter_address.read_chosen_filter(request.state.form))
    lines = bulk_actions.stream_letters(here.desk, masks, console.get_principal(request).name, wanted)
    return StreamingResponse(lines, 200, bulk_actions.build_download_headers("letters.jsonl"), bulk_actions.NDJSON)


def build_cursor(letter: LetterLine) -> LetterCursor:
    """Return the position of a letter in a list."""
    return LetterCursor(letter.failed_at, letter.id)


def watch_letters(here: Console, rest: str, masks: LetterMasks) -> Callable[[], LiveSnapshot]:
    """Return a function that counts the letters that came after a list was made: a number, and no rows.

    Parameters:
        rest: the list's newest letter and its filter as a query string, separated by `?`.

    Raises:
        FilterFault: the filter is malformed, or has a field that the caller may not search by.
    """
    newest, _, encoded = rest.partition("?")
    query, after = QueryParams(encoded), LetterCursor.read(newest)
    chosen = masks.check(filter_address.read_filter(query))
    address = filter_address.build_address("/letters", query)

    def count_new() -> LiveSnapshot:
        count = len(here.desk.letters.newer(chosen, MAX_NEW_LETTERS, after).letters)
        return LiveSnapshot(
            "", False, {"l-more": str(here.macros("new-letters.html").more(count, MAX_NEW_LETTERS, address)).strip()}
        )

    return count_new


def _build_stream_name(query: QueryParams, newest: LetterCursor) -> str:
    kept = filter_address.build_address("", filter_address.add_open_status(query), **filter_address.PAGE_PARAMETERS)
    return f"letters-{newest}{kept}"


def _build_neighbour_pages(
    query: QueryParams, page: LetterPage, before: LetterCursor | None, after: LetterCursor | None
) -> tuple[str | None, str | None]:
    """Return the addresses of the pages with newer and with older letters."""

    def at(name: str, place: LetterCursor | None) -> str | None:
        return (
            None
            if place is None
            else filter_address.build_address("/letters", query, **filter_address.PAGE_PARAMETERS | {name: str(place)})
        )

    first = build_cursor(page.letters[0]) if page.letters else None
    last = build_cursor(page.letters[-1]) if page.letters else None
    if after is not None:
        return at("after", page.next), at("before", last or after)
    return at("after", first or before) if before else None, at("before", page.next)


def _list_same_columns(chosen: LetterFilter) -> frozenset[str]:
    """Return the columns in which all rows have the same value."""
    named = {"handler": chosen.handlers, "reason": chosen.reasons, "version": chosen.versions}
    return frozenset(name for name, values in named.items() if len(values) == 1) | (
        frozenset() if chosen.key is None else {"key"}
    )


def _explain_absence(desk: DeadLetterService, chosen: LetterFilter) -> dict[str, object]:
    """Explain an empty list: unknown values in the filter, and the number of letters without it."""
    return {"sentences": desk.absent.describe_absent(chosen), "all": desk.letters.count(ALL_LETTERS)}


#: The most bytes of two values that are compared for the page.
MAX_COMPARED_BYTES: Final = 65_536

#: The statuses of a replayed letter that has not died again.
_SENT_STATUSES: Final = (LetterStatus.REPLAYING, LetterStatus.RESOLVED)


class EarlierFailure(NamedTuple):
    """A failure before the last.

    Attributes:
        rows: the difference of its value to that of the next failure; `None`: too large to compare.
    """

    failed: LetterFailure
    rows: list[DiffRow] | None


class SentValue(NamedTuple):
    """An edited value with which a letter was replayed.

    Attributes:
        rows: the difference; `None`: too large to compare.
    """

    plan: int | None
    by: str
    rows: list[DiffRow] | None


def show_letter(request: Request) -> Response:
    """Show a letter."""
    here, query = console.get_console(request), request.query_params
    letter = here.desk.letters.one(request.path_params["id"])
    unmasked, unavailable = _read_with_value(here.desk, letter) if query.get("kafka") else (letter, "")
    view = console.get_masks(request).letter(unmasked)
    letter, it = view.letter, view.letter.listed
    failed, traceback = _select_failure(letter, query.get("failure", ""))
    newer, older = _find_neighbours(request, letter)
    return here.page(
        request,
        "letter.html",
        letter=letter,
        it=it,
        panel=build_payload_panel(
            request,
            letter.value,
            view.value,
            encoded=letter.encoded,
            schema=letter.schema,
            quoted=find_quoted_text(it.error_message),
        ),
        headers=list(list_header_rows(letter.headers, it.topic, console.get_masks(request))),
        key_letters=address_key_letters(it.key, it.topic, console.get_masks(request)),
        view=view,
        away=unavailable,
        read=bool(query.get("kafka")) and letter.kept,
        marks=find_quoted_text(it.error_message),
        traceback=traceback,
        takes=_check_value(here.desk, unmasked, view),
        exceptions=split_traceback(traceback, it.handler),
        failed=failed,
        events=build_timeline(letter),
        earlier=list(_list_earlier(letter)),
        sent=_compare_sent(letter),
        # The record has its attempts up to its death; it does not know of a replay since.
        tries=letter.attempts._replace(replayed=letter.attempts.replayed + int(_is_sent(letter))),
        notes=_list_notes(here.desk, letter),
        next=advise_on_letter(letter),
        usual=LOOK_AT_LETTER.why,
        newer=newer,
        older=older,
        back=filter_address.build_address("/letters", QueryParams(filter_address.list_filter_fields(query))),
        kept=filter_address.build_address("", QueryParams(filter_address.list_filter_fields(query))),
        others=_find_sibling_deliveries(here.desk, view) if query.get("elsewhere") else None,
        shows=here.masking.may_lift(console.get_principal(request)),
        acts=console.get_principal(request).role >= may.EDIT_LETTER,
    )


def show_sibling_deliveries(request: Request) -> Response:
    """Show the same message's deliveries to all handlers, as Kafka and Redis have them: a part of the page."""
    here = console.get_console(request)
    view = console.get_masks(request).letter(here.desk.letters.one(request.path_params["id"]))
    return here.page(
        request, "sibling-deliveries.html", it=view.letter.listed, others=_find_sibling_deliveries(here.desk, view)
    )


def download_value(request: Request) -> Response:
    """Send the value, byte for byte, as a file that no browser displays."""
    desk = console.get_console(request).desk
    letter = desk.letters.one(request.path_params["id"])
    if request.query_params.get("kafka"):
        letter = desk.database.payloads.read_letter(fetch_letter_value(desk.settings, letter))
    if console.get_masks(request).letter(letter).value.is_any:
        raise HTTPException(403, "This value has fields that your role does not see, so it is no file for you.")
    if letter.in_kafka is None:
        raise HTTPException(404, "This letter has no value here: it is a tombstone, or too large for the database.")
    name = f'attachment; filename="letter-{letter.listed.id}.bin"'
    return Response(letter.in_kafka, media_type="application/octet-stream", headers={"content-disposition": name})


def note_on_letter(request: Request) -> Response:
    """Add a note to a letter."""
    id_, note = request.path_params["id"], check_length(request.state.form.get("note", ""), MAX_NOTE)
    if not note:
        raise HTTPException(400, "The note is empty. Nothing was changed.")
    who = console.get_principal(request).name
    submit_once(request, lambda desk: _add_note(desk, id_, note, who))
    return answer_done(request, f"/letters/{id_}#notes", f"Noted on letter {id_}.")


def reopen(request: Request) -> Response:
    """Reopen a letter whose replay has an unknown outcome: it did not run."""
    return _ended(request, "Reopened", lambda desk: desk.unknown_ends.reopen)


def resolve(request: Request) -> Response:
    """Resolve a letter whose replay has an unknown outcome: it ran."""
    return _ended(request, "Resolved", lambda desk: desk.unknown_ends.resolve)


def _ended(
    request: Request,
    done: str,
    end: Callable[[DeadLetterService], Callable[[Sequence[int], int | None, str, str], list[int]]],
) -> Response:
    id_: int = request.path_params["id"]
    said, who = require_why(request), console.get_principal(request).name

    def ended(desk: DeadLetterService) -> int:
        if not end(desk)([id_], None, said, who):
            raise HTTPException(409, "How it ended is known by now: look at it again. Nothing was changed.")
        return id_

    submit_once(request, ended)
    return answer_done(request, f"/letters/{id_}", f"{done} letter {id_}.")


def _add_note(desk: DeadLetterService, letter: int, note: str, who: str) -> int:
    desk.notes.on_letters([letter], note, who)
    return letter


def _read_with_value(desk: DeadLetterService, letter: LetterView) -> tuple[LetterView, str]:
    """Return the letter with its value from Kafka, or the reason why it has none."""
    try:
        with_value = desk.database.payloads.read_letter(fetch_letter_value(desk.settings, letter))
    except KafkaUnavailable as error:
        return letter, str(error)
    return with_value, "" if with_value.kept else "Kafka does not have this record any more."


def _check_value(desk: DeadLetterService, letter: LetterView, view: MaskedView) -> HandlerVerdict | None:
    """Return the handler's verdict on the value; `None` if there is no value here."""
    if not letter.kept or letter.listed.origin != "bridge":
        return None
    verdict = desk.mending.judge_as_it_is(letter)
    return verdict._replace(why=view.quotes.masked(verdict.why))


def _select_failure(letter: LetterView, number: str) -> tuple[LetterFailure | None, str]:
    """Return the failure whose traceback is shown: an earlier one, or the last."""
    earlier = next((failure for failure in letter.history if str(failure.number) == number), None)
    return earlier, letter.traceback if earlier is None else earlier.traceback


def _is_sent(letter: LetterView) -> bool:
    return letter.listed.status in _SENT_STATUSES and letter.listed.plan is not None


def _compare_sent(letter: LetterView) -> SentValue | None:
    listed = letter.listed
    edit = next((sent for sent in letter.edits if sent.plan == listed.plan), None) if _is_sent(letter) else None
    if edit is None:
        return None
    small = letter.kept and max(len(letter.value or b""), len(edit.value or b"")) <= MAX_COMPARED_BYTES
    return SentValue(listed.plan, edit.by, build_diff_rows(diff_values(letter.value, edit.value)) if small else None)


def _list_earlier(letter: LetterView) -> Iterator[EarlierFailure]:
    after: list[LetterFailure | LetterView] = [*letter.history, letter]
    for failed, following in zip(letter.history, after[1:], strict=True):
        known = failed.kept and following.kept
        small = max(len(failed.value or b""), len(following.value or b"")) <= MAX_COMPARED_BYTES
        compared = (
            build_diff_rows(diff_values(failed.value, following.value)) if failed.mended and known and small else None
        )
        yield EarlierFailure(failed, compared)


def _list_notes(desk: DeadLetterService, letter: LetterView) -> list[LetterAct]:
    """Return the actions of people on the letter and on its group."""
    return sorted((*letter.trail, *desk.notes.of_group(letter.listed.group)), key=lambda act: act.at or 0)


def _find_neighbours(request: Request, letter: LetterView) -> tuple[str | None, str | None]:
    """Return the addresses of the next letters in the list that the user came from."""
    fields, desk = (
        QueryParams(filter_address.list_filter_fields(request.query_params)),
        console.get_console(request).desk,
    )
    if not fields:
        return None, None
    try:
        chosen = console.get_masks(request).check(filter_address.read_filter(fields))
    except FilterFault:
        return None, None
    newer = desk.letters.newer(chosen, 1, build_cursor(letter.listed)).letters
    older = desk.letters.page(chosen, 1, build_cursor(letter.listed)).letters
    first, second = (
        filter_address.build_address(f"/letters/{letters[0].id}", fields) if letters else None
        for letters in (newer, older)
    )
    return first, second


def _find_sibling_deliveries(desk: DeadLetterService, view: MaskedView) -> object:
    listed = view.letter.listed
    if fault := record_lookup.find_scope_fault(desk, listed.topic):
        return fault
    deliveries = find_sibling_deliveries(
        desk.app, desk.settings, desk.routes, listed.origin, listed.topic, listed.partition, listed.offset
    )
    return deliveries if isinstance(deliveries, str) else mask_last_errors(deliveries, view.quotes)
