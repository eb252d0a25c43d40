"""The page Find: where a record is now, by its coordinate, its key, a task or a letter."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console, record_lookup
from bridge.console.record_lookup import LookupAnswer, describe_missing_database, look_up, mask_lookup_answer
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import DeskUnavailable, NoSuchLetter

#: The most characters of a query.
MAX_QUERY_LENGTH: Final = 1_000


def show_find(request: Request) -> Response:
    """Show where a record, key, task or letter is now."""
    asked = console.get_console(request)
    text = " ".join(request.query_params.get("q", "").split())
    if not text or len(text) > MAX_QUERY_LENGTH:
        return _render_find(
            request,
            "",
            None,
            LookupAnswer(looked=[f"{MAX_QUERY_LENGTH:,} characters are asked for at most."] if text else []),
        )
    wanted, answer = record_lookup.parse_lookup_query(text, asked.desk.routes.topics), LookupAnswer()
    match wanted:
        case record_lookup.PlanQuery():
            return RedirectResponse(f"/plans/{wanted.id}", 303)
        case record_lookup.LetterQuery():
            if _has_letter(asked.desk, wanted.id, answer):
                return RedirectResponse(f"/letters/{wanted.id}", 303)
            look_up(asked.desk, record_lookup.KeyQuery(None, text), answer, console.get_masks(request))
        case _:
            look_up(asked.desk, wanted, answer, console.get_masks(request))
    mask_lookup_answer(asked.desk.lists(console.get_masks(request)), answer)
    return _render_find(request, text, wanted, answer, 200 if answer.has_results or answer.silent else 404)


def _has_letter(desk: DeadLetterService, id_: int, answer: LookupAnswer) -> bool:
    try:
        desk.letters.one(id_)
    except NoSuchLetter:
        answer.looked.append(f"The dead letters' database, for a letter {id_}.")
        return False
    except DeskUnavailable as error:
        answer.silent.append(describe_missing_database(error))
        return False
    return True


def _render_find(
    request: Request, text: str, wanted: record_lookup.LookupQuery | None, answer: LookupAnswer, status: int = 200
) -> Response:
    asked = console.get_console(request)
    bare = isinstance(wanted, record_lookup.KeyQuery) and wanted.topic is None
    return asked.page(
        request,
        "find.html",
        status,
        text=text,
        answer=answer,
        fate=record_lookup.describe_fate,
        letter_of={each.name: each.id for each in answer.letters},
        topics=asked.desk.routes.topics if bare else (),
        one=isinstance(wanted, record_lookup.RecordQuery),
    )
