"""Find: where a record is now, by its coordinate, its key, a task or a letter."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.desk import Desk
from bridge.errors import DeskUnavailable, NoSuchLetter
from bridge.web import console, finding
from bridge.web.found import Answer, look, mask, no_database

#: Characters that may be asked for.
LONGEST: Final = 1_000


def shown(request: Request) -> Response:
    """Where it is."""
    asked = console.of(request)
    text = " ".join(request.query_params.get("q", "").split())
    if not text or len(text) > LONGEST:
        return _page(
            request, "", None, Answer(looked=[f"{LONGEST:,} characters are asked for at most."] if text else [])
        )
    wanted, answer = finding.wanted(text, asked.desk.routes.topics), Answer()
    match wanted:
        case finding.Plan():
            return RedirectResponse(f"/plans/{wanted.id}", 303)
        case finding.Letter():
            if _is_letter(asked.desk, wanted.id, answer):
                return RedirectResponse(f"/letters/{wanted.id}", 303)
            look(asked.desk, finding.Key(None, text), answer, console.masks(request))
        case _:
            look(asked.desk, wanted, answer, console.masks(request))
    mask(asked.desk.lists(console.masks(request)), answer)
    return _page(request, text, wanted, answer, 200 if answer.found or answer.silent else 404)


def _is_letter(desk: Desk, id_: int, answer: Answer) -> bool:
    try:
        desk.letters.one(id_)
    except NoSuchLetter:
        answer.looked.append(f"The dead letters' database, for a letter {id_}.")
        return False
    except DeskUnavailable as error:
        answer.silent.append(no_database(error))
        return False
    return True


def _page(request: Request, text: str, wanted: finding.Wanted | None, answer: Answer, status: int = 200) -> Response:
    asked = console.of(request)
    bare = isinstance(wanted, finding.Key) and wanted.topic is None
    return asked.page(
        request,
        "find.html",
        status,
        text=text,
        answer=answer,
        fate=finding.fate,
        letter_of={each.name: each.id for each in answer.letters},
        topics=asked.desk.routes.topics if bare else (),
        one=isinstance(wanted, finding.Record),
    )
