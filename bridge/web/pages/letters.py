"""Letters, by the filter that stands in the address."""

from collections.abc import Callable
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.filters import EVERYTHING, Cursor, Filter
from bridge.deadletters.letters.letter import REASONS, Status
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.questions.shown import Listed, Page
from bridge.errors import FilterFault
from bridge.web import asked, console, exporting
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.roles import Role

#: Rows of a page, of which the first is usual.
ROWS: Final = (50, 25, 100)
#: Handlers that are offered to be picked; of more they are typed.
PICKED: Final = 200
#: Letters up to which those are counted that have come since.
MORE: Final = 100
#: Parameters of an address that say which page of the list it is.
_PAGE: Final = {"before": "", "after": "", "kept": ""}


def listed(request: Request) -> Response:
    """A page of letters, newest first; without a status in the address, those that are open."""
    here, query = console.of(request), request.query_params
    try:
        given = console.masks(request).check(asked.read(asked.with_status(query)))
    except FilterFault as error:
        return here.page(request, "letters-refused.html", 400, words=str(error), **_form(here, query))
    form = _form(here, query)
    rows = form["rows"]
    before, after = (Cursor.read(query[name]) if query.get(name) else None for name in ("before", "after"))
    page = here.desk.letters.newer(given, rows, after) if after else here.desk.letters.page(given, rows, before)
    if after and page.next is None and len(page.letters) < rows:
        # The newest page, whole.
        return RedirectResponse(asked.address("/letters", query, **_PAGE), 303)
    newer, older = _around(query, page, before, after)
    return here.page(
        request,
        "letters.html",
        not_recorded=here.recorders().said(),
        letters=here.desk.lists(console.masks(request)).lines(page.letters),
        count=here.desk.letters.count(given),
        given=given,
        fields=asked.fields(asked.with_status(query)),
        newer=newer,
        older=older,
        live=None if before or after or not page.letters else _live(query, cursor(page.letters[0])),
        kept=asked.address("", asked.with_status(query), rows="", **_PAGE),
        sizes=[(each, asked.address("/letters", query, rows=str(each), **_PAGE)) for each in sorted(ROWS)],
        same=_same(given),
        absence=None if page.letters else _absence(here.desk, given),
        acts=console.asking(request).role >= Role.OPERATOR,
        command=asked.command("list", asked.with_status(query)),
        **form,
    )


def _form(here: Console, query: QueryParams) -> dict[str, Any]:
    """What the filter's form has: what was asked, and what is offered."""
    handlers = here.desk.routes.handlers
    offered = sorted(handlers) if len(handlers) <= PICKED else ()
    rows = next((each for each in ROWS if str(each) == query.get("rows")), ROWS[0])
    return {"query": query, "rows": rows, "handlers": offered, "reasons": REASONS, "statuses": tuple(Status)}


def export(request: Request) -> Response:
    """The letters that a form of the list means, as a file; by a form, since the trail has who took them."""
    here, masks = console.of(request), console.masks(request)
    wanted = masks.check(asked.chosen(request.state.form))
    lines = exporting.letters(here.desk, masks, console.asking(request).name, wanted)
    return StreamingResponse(lines, 200, exporting.headers("letters.jsonl"), exporting.LINES)


def cursor(letter: Listed) -> Cursor:
    """Where a letter stands in a list."""
    return Cursor(letter.failed_at, letter.id)


def live(here: Console, rest: str, masks: Masks) -> Callable[[], Snapshot]:
    """Makes how many letters of a list have come since it was made: a number, and no row.

    Parameters:
        rest: the list's newest letter, and its filter as an address has it, with a `?` between them.

    Raises:
        FilterFault: it says what is none, or what somebody may not search by.
    """
    newest, _, said = rest.partition("?")
    query, after = QueryParams(said), Cursor.read(newest)
    given = masks.check(asked.read(query))
    address = asked.address("/letters", query)

    def made() -> Snapshot:
        more = len(here.desk.letters.newer(given, MORE, after).letters)
        return Snapshot("", False, {"l-more": str(here.macros("letters-live.html").more(more, MORE, address)).strip()})

    return made


def _live(query: QueryParams, newest: Cursor) -> str:
    kept = asked.address("", asked.with_status(query), **_PAGE)
    return f"letters-{newest}{kept}"


def _around(
    query: QueryParams, page: Page, before: Cursor | None, after: Cursor | None
) -> tuple[str | None, str | None]:
    """The addresses of the pages with newer and with older letters."""

    def at(name: str, place: Cursor | None) -> str | None:
        return None if place is None else asked.address("/letters", query, **_PAGE | {name: str(place)})

    first = cursor(page.letters[0]) if page.letters else None
    last = cursor(page.letters[-1]) if page.letters else None
    if after is not None:
        return at("after", page.next), at("before", last or after)
    return at("after", first or before) if before else None, at("before", page.next)


def _same(given: Filter) -> frozenset[str]:
    """The columns of which all rows have the same."""
    named = {"handler": given.handlers, "reason": given.reasons, "version": given.versions}
    return frozenset(name for name, values in named.items() if len(values) == 1) | (
        frozenset() if given.key is None else {"key"}
    )


def _absence(desk: Desk, given: Filter) -> dict[str, object]:
    """Why there is nothing: what nobody knows of the filter, and how many there are without it."""
    return {"sentences": desk.absent.of(given), "all": desk.letters.count(EVERYTHING)}
