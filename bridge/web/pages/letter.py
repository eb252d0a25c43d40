"""One letter, with all that is known of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.commands.elsewhere import elsewhere
from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.frames import raised
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.letters.looks import Look, Way, look, quoted
from bridge.deadletters.masking.masks import View
from bridge.deadletters.mending.differences import difference
from bridge.deadletters.mending.validating import Verdict
from bridge.deadletters.questions.advising import suggestion
from bridge.deadletters.questions.in_topics import with_value
from bridge.deadletters.questions.shown import Act, Failed, Shown
from bridge.deadletters.questions.timeline import timeline
from bridge.errors import FilterFault, KafkaUnavailable
from bridge.web import asked, console
from bridge.web.differing import Row, rows
from bridge.web.finding import unquoted
from bridge.web.pages.deciding import NOTE, limited, why
from bridge.web.pages.letters import cursor
from bridge.web.pages.once import once
from bridge.web.roles import Role

#: Bytes of two values of which the difference is shown with the page.
COMPARED: Final = 65_536

#: Of what went back and has not died of it.
_SENT: Final = (Status.REPLAYING, Status.RESOLVED)


class Earlier(NamedTuple):
    """A failure before the last.

    Attributes:
        rows: how the value that failed then differs from the one that failed next; `None`: it is too large to tell.
    """

    failed: Failed
    rows: list[Row] | None


class Sent(NamedTuple):
    """Another value than that of which a letter died, with which it went back.

    Attributes:
        rows: how it differs; `None`: it is too large to tell.
    """

    plan: int | None
    by: str
    rows: list[Row] | None


def one(request: Request) -> Response:
    """The letter's page."""
    here, query = console.of(request), request.query_params
    letter = here.desk.letters.one(request.path_params["id"])
    whole, away = _with_value(here.desk, letter) if query.get("kafka") else (letter, "")
    view = console.masks(request).letter(whole)
    letter, it = view.letter, view.letter.listed
    failed, traceback = _failure(letter, query.get("failure", ""))
    newer, older = _next_to(request, letter)
    return here.page(
        request,
        "letter.html",
        letter=letter,
        it=it,
        look=_look(view, query),
        view=view,
        away=away,
        read=bool(query.get("kafka")) and letter.kept,
        marks=quoted(it.error_message),
        takes=_takes(here.desk, whole, view),
        exceptions=raised(traceback, it.handler),
        failed=failed,
        events=timeline(letter),
        earlier=list(_earlier(letter)),
        sent=_sent(letter),
        # Of its attempts it tells as it died; that it went back since is in no record.
        tries=letter.attempts._replace(replayed=letter.attempts.replayed + int(_is_sent(letter))),
        notes=_notes(here.desk, letter),
        next=suggestion(letter),
        newer=newer,
        older=older,
        back=asked.address("/letters", QueryParams(asked.fields(query))),
        kept=asked.address("", QueryParams(asked.fields(query))),
        others=_elsewhere(here.desk, view) if query.get("elsewhere") else None,
        shows=here.masking.may_lift(console.asking(request)),
        acts=console.asking(request).role >= Role.OPERATOR,
    )


def others(request: Request) -> Response:
    """What became of the same message elsewhere: a part of the page, which Kafka and Redis are asked for."""
    here = console.of(request)
    view = console.masks(request).letter(here.desk.letters.one(request.path_params["id"]))
    return here.page(request, "elsewhere.html", it=view.letter.listed, others=_elsewhere(here.desk, view))


def value(request: Request) -> Response:
    """Its value, byte for byte, as a file: never as something that a browser would show."""
    desk = console.of(request).desk
    letter = desk.letters.one(request.path_params["id"])
    if request.query_params.get("kafka"):
        letter = with_value(desk.settings, letter)
    if console.masks(request).letter(letter).value.is_any:
        raise HTTPException(403, "This value has fields that your role does not see, so it is no file for you.")
    if letter.value is None:
        raise HTTPException(404, "This letter has no value here: it is a tombstone, or too large for the database.")
    name = f'attachment; filename="letter-{letter.listed.id}.bin"'
    return Response(letter.value, media_type="application/octet-stream", headers={"content-disposition": name})


def note(request: Request) -> Response:
    """Note something on it."""
    id_, said = request.path_params["id"], limited(request.state.form.get("note", ""), NOTE)
    if not said:
        raise HTTPException(400, "A note has words: nothing was noted.")
    who = console.asking(request).name
    once(request, lambda desk: _noted(desk, id_, said, who))
    return RedirectResponse(f"/letters/{id_}#notes", 303)


def reopen(request: Request) -> Response:
    """Open it: its replay, of which nobody could tell, did not run."""
    return _ended(request, lambda desk: desk.unknown_ends.reopen)


def resolve(request: Request) -> Response:
    """Resolve it: its replay, of which nobody could tell, ran."""
    return _ended(request, lambda desk: desk.unknown_ends.resolve)


def _ended(
    request: Request, end: Callable[[Desk], Callable[[Sequence[int], int | None, str, str], list[int]]]
) -> Response:
    id_: int = request.path_params["id"]
    said, who = why(request), console.asking(request).name

    def ended(desk: Desk) -> int:
        if not end(desk)([id_], None, said, who):
            raise HTTPException(409, "How it ended is known by now: look at it again. Nothing was changed.")
        return id_

    once(request, ended)
    return RedirectResponse(f"/letters/{id_}", 303)


def _noted(desk: Desk, letter: int, said: str, who: str) -> int:
    desk.notes.on_letters([letter], said, who)
    return letter


def _way(query: QueryParams) -> Way | None:
    said = query.get("value", "")
    return Way(said) if said in list(Way) else None


def _at(query: QueryParams) -> int | None:
    said = query.get("from", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


def _with_value(desk: Desk, letter: Shown) -> tuple[Shown, str]:
    """The letter with its value out of Kafka; or why it has none."""
    try:
        found = with_value(desk.settings, letter)
    except KafkaUnavailable as error:
        return letter, str(error)
    return found, "" if found.kept else "Kafka does not have this record any more."


def _look(view: View, query: QueryParams) -> Look:
    """Its value; of one in which something is masked, the bytes are none that were sent."""
    if not view.value.is_any:
        return look(view.letter.value, _way(query), _at(query))
    found = look(view.letter.value, Way.PRETTY, _at(query))
    return replace(found, ways=(Way.PRETTY,), way=Way.PRETTY)


def _takes(desk: Desk, letter: Shown, view: View) -> Verdict | None:
    """What its handler says of its value; nothing where there is none here."""
    if not letter.kept or letter.listed.origin != "bridge":
        return None
    said = desk.mending.takes(letter.listed.handler, letter.value)
    return said._replace(why=view.quotes.masked(said.why))


def _failure(letter: Shown, number: str) -> tuple[Failed | None, str]:
    """Which failure's traceback is shown: one before, or the last."""
    found = next((each for each in letter.history if str(each.number) == number), None)
    return found, letter.traceback if found is None else found.traceback


def _is_sent(letter: Shown) -> bool:
    return letter.listed.status in _SENT and letter.listed.plan is not None


def _sent(letter: Shown) -> Sent | None:
    it = letter.listed
    edit = next((each for each in letter.edits if each.plan == it.plan), None) if _is_sent(letter) else None
    if edit is None:
        return None
    small = letter.kept and max(len(letter.value or b""), len(edit.value or b"")) <= COMPARED
    return Sent(it.plan, edit.by, rows(difference(letter.value, edit.value)) if small else None)


def _earlier(letter: Shown) -> Iterator[Earlier]:
    after: list[Failed | Shown] = [*letter.history, letter]
    for failed, following in zip(letter.history, after[1:], strict=True):
        known = failed.kept and following.kept
        small = max(len(failed.value or b""), len(following.value or b"")) <= COMPARED
        compared = rows(difference(failed.value, following.value)) if failed.mended and known and small else None
        yield Earlier(failed, compared)


def _notes(desk: Desk, letter: Shown) -> list[Act]:
    """What people did with it, and with its group."""
    return sorted((*letter.trail, *desk.notes.of_group(letter.listed.group)), key=lambda act: act.at or 0)


def _next_to(request: Request, letter: Shown) -> tuple[str | None, str | None]:
    """The addresses of the letters next to it in the list that somebody came from."""
    fields, desk = QueryParams(asked.fields(request.query_params)), console.of(request).desk
    if not fields:
        return None, None
    try:
        given = console.masks(request).check(asked.read(fields))
    except FilterFault:
        return None, None
    newer = desk.letters.newer(given, 1, cursor(letter.listed)).letters
    older = desk.letters.page(given, 1, cursor(letter.listed)).letters
    first, second = (asked.address(f"/letters/{each[0].id}", fields) if each else None for each in (newer, older))
    return first, second


def _elsewhere(desk: Desk, view: View) -> object:
    it = view.letter.listed
    found = elsewhere(desk.app, desk.settings, desk.routes, it.origin, it.topic, it.partition, it.offset)
    return found if isinstance(found, str) else unquoted(found, view.quotes)
