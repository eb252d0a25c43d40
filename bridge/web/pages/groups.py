"""Groups: each one thing to mend."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.web import console
from bridge.web.pages import asked


def listed(request: Request) -> Response:
    """Groups that have letters of a filter; without one, those with open letters."""
    given = asked.read(request.query_params)
    wanted = (
        given
        if request.query_params.get("show") == "all" or given.statuses
        else replace(given, statuses=(Status.OPEN,))
    )
    found = console.of(request).desk.groups.all(wanted)
    return console.of(request).page(request, "groups.html", groups=found, every=request.query_params.get("show", ""))


def one(request: Request) -> Response:
    """A group, and its newest letters."""
    asked_for = console.of(request)
    group = asked_for.desk.groups.one(request.path_params["id"])
    letters = asked_for.desk.letters.page(Filter(groups=(group.id,)), 10)
    return asked_for.page(request, "group.html", group=group, letters=letters.letters)
