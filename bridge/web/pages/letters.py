"""Letters, by the filter that stands in the address."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.filters import Cursor
from bridge.web import console
from bridge.web.pages import asked

#: Rows of a page.
ROWS: Final = 50


def listed(request: Request) -> Response:
    """A page of letters, newest first; without a status in the address, those that are open."""
    query = request.query_params
    given = asked.read(asked.with_status(query))
    before = Cursor.read(query["before"]) if query.get("before") else None
    desk = console.of(request).desk
    page = desk.letters.page(given, ROWS, before)
    older = asked.address("/letters", query, before=str(page.next)) if page.next else None
    return console.of(request).page(
        request, "letters.html", letters=page.letters, count=desk.letters.count(given), older=older, query=query
    )
