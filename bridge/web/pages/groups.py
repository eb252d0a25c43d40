"""Groups: each one thing to mend."""

from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.groups import Grouped, Order
from bridge.web import console, pictures
from bridge.web.pages import asked

#: What of all groups is shown.
SHOWS: Final = ("with open letters", "all", "marked as fixed", "come back")


def listed(request: Request) -> Response:
    """Groups that have letters of a filter; without one, those with open letters. Most open letters first."""
    here, query = console.of(request), request.query_params
    show = query.get("show", SHOWS[0])
    given = console.masks(request).check(asked.read(query))
    wanted = replace(given, statuses=(Status.OPEN,)) if show == SHOWS[0] and not given.statuses else given
    found = [each for each in here.desk.groups.all(wanted, Order.OPEN) if _is_shown(each, show, query.get("place", ""))]
    stand = here.desk.standings.of(found)
    return here.page(
        request,
        "groups.html",
        stand=stand.groups,
        trouble=stand.trouble,
        show=show,
        shows=SHOWS,
        query=query,
        pictures=pictures,
        command=asked.command("groups", query),
    )


def _is_shown(group: Grouped, show: str, place: str) -> bool:
    if show == "marked as fixed" and not group.fixed_in:
        return False
    if show == "come back" and not group.regressed_at:
        return False
    return place.lower() in f"{group.error_class} {group.place}".lower()


def one(request: Request) -> Response:
    """A group, and its newest letters."""
    here = console.of(request)
    group = here.desk.groups.one(request.path_params["id"])
    newest = here.desk.letters.page(Filter(groups=(group.id,)), 10).letters
    stand = here.desk.standings.of([group])
    return here.page(
        request,
        "group.html",
        group=group,
        around=stand.groups[0].around,
        next=stand.groups[0].next,
        trouble=stand.trouble,
        versions=here.desk.versions.of(group),
        again=here.desk.standings.died_again(group),
        letters=here.desk.lists(console.masks(request)).lines(newest),
        trail=here.desk.notes.of_group(group.id),
        pictures=pictures,
    )


def common(request: Request) -> Response:
    """What the letters of a group have in common: counted when somebody asks for it."""
    here = console.of(request)
    group = here.desk.groups.one(request.path_params["id"])
    masks = console.masks(request)
    return here.page(request, "common.html", group=group, found=here.desk.common(masks).of(group), masked=bool(masks))
