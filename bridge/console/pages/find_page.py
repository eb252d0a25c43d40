"""The page Find: where a record is now, by its coordinate, its key, a task or a letter."""

import re
from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console, record_lookup
from bridge.console.record_lookup import LookupAnswer, describe_missing_database, look_up, mask_lookup_answer
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import DeskUnavailable, NoSuchLetter

#: The most characters of a query.
MAX_QUERY_LENGTH: Final = 1_000
#: Partition and offset.
_PLACE: Final = re.compile(r"\d{1,18}-\d{1,18}", re.ASCII)


def show_find(request: Request) -> Response:
    """Show where a record, key, task or letter is now."""
    asked = console.get_console(request)
    topics = asked.desk.routes.topics
    text = _name_topic(
        " ".join(request.query_params.get("q", "").split()), request.query_params.get("topic", ""), topics
    )
    below = record_lookup.read_below(request.query_params.get("below", ""))
    if not text or len(text) > MAX_QUERY_LENGTH:
        return _render_find(
            request,
            "",
            None,
            LookupAnswer(looked=[f"{MAX_QUERY_LENGTH:,} characters are asked for at most."] if text else []),
        )
    wanted, answer = record_lookup.parse_lookup_query(text, topics), LookupAnswer()
    match wanted:
        case record_lookup.PlanQuery():
            return RedirectResponse(f"/plans/{wanted.id}", 303)
        case record_lookup.LetterQuery():
            if _has_letter(asked.desk, wanted.id, answer):
                return RedirectResponse(f"/letters/{wanted.id}", 303)
            look_up(asked.desk, record_lookup.KeyQuery(None, text), answer, console.get_masks(request))
        case _:
            look_up(asked.desk, wanted, answer, console.get_masks(request), below)
    mask_lookup_answer(asked.desk.lists(console.get_masks(request)), answer)
    return _render_find(request, text, wanted, answer, 200 if answer.has_results or answer.silent else 404)


def _name_topic(text: str, topic: str, topics: Collection[str]) -> str:
    """Return what was typed on the page of a topic as Find takes it: `3-1234` is a record of the topic."""
    if not text or topic not in topics or text.startswith((f"{topic}-", f"{topic} ")):
        return text
    return f"{topic}-{text}" if _PLACE.fullmatch(text) else f"{topic} {text}"


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


def _find_content_address(wanted: record_lookup.LookupQuery | None, topics: Collection[str]) -> str | None:
    """Return the address of the page with a record's content; `None` if it is no record of the group's topics."""
    if not isinstance(wanted, record_lookup.RecordQuery) or wanted.topic not in topics:
        return None
    return f"/topics/{wanted.topic}/records/{wanted.partition}/{wanted.offset}"


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
        timed=isinstance(wanted, record_lookup.TimeQuery),
        content=_find_content_address(wanted, asked.desk.routes.topics),
        sources=asked.desk.routes.topics,
        one=isinstance(wanted, record_lookup.RecordQuery),
    )
