"""Groups: each one thing to mend."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.group_causes import with_letters
from bridge.deadletters.questions.ranking import Order, Ranked
from bridge.web import asked, console, pictures
from bridge.web.deciding import act

#: Groups of a page.
ROWS: Final = 50
#: Where a group stands in the list.
_PLACE: Final = re.compile("([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})")
#: What of all groups is shown.
SHOWS: Final = ("with open letters", "all", "marked as fixed", "come back")


def listed(request: Request) -> Response:
    """Groups that have letters of a filter; without one, those with open letters. Most open letters first."""
    here, query = console.of(request), request.query_params
    show = query.get("show", SHOWS[0])
    given = console.masks(request).check(asked.read(query))
    wanted = replace(given, statuses=(Status.OPEN,)) if show == SHOWS[0] and not given.statuses else given
    place = query.get("place", "")
    found = [each for each in here.desk.groups.ranked(wanted, Order.OPEN) if _is_shown(each, show, place)]
    first, some = _page(found, query.get("before"))
    stand = here.desk.standings.of(here.desk.groups.of([each.id for each in some]))
    return here.page(
        request,
        "groups.html",
        not_recorded=here.recorders().said(),
        stand=stand.groups,
        count=len(found),
        first=first,
        before=_address(query, found, first - ROWS) if first else None,
        after=_address(query, found, first + ROWS) if first + ROWS < len(found) else None,
        trouble=stand.trouble,
        show=show,
        shows=SHOWS,
        query=query,
        pictures=pictures,
        command=asked.command("groups", query),
    )


def _page(found: Sequence[Ranked], before: str | None) -> tuple[int, Sequence[Ranked]]:
    """How many groups stand before a page, and those of the page.

    Parameters:
        before: where the page before it ended: it goes on there, also where that group has moved, or is gone.
    """
    ends = _PLACE.fullmatch(before or "")
    at = tuple(map(int, ends.groups())) if ends else None
    first = 0 if at is None else sum(each.by(Order.OPEN) >= at for each in found)
    return first, found[first : first + ROWS]


def _address(query: QueryParams, found: Sequence[Ranked], first: int) -> str:
    """Of the page that begins behind so many groups."""
    place = "-".join(map(str, found[first - 1].by(Order.OPEN))) if first > 0 else ""
    return asked.address("/groups", query, before=place)


def _is_shown(group: Ranked, show: str, place: str) -> bool:
    if show == "marked as fixed" and not group.is_fixed:
        return False
    if show == "come back" and not group.came_back:
        return False
    return place.lower() in f"{group.error_class} {group.place}".lower()


def one(request: Request) -> Response:
    """A group, and its newest letters."""
    here = console.of(request)
    group = here.desk.groups.one(request.path_params["id"])
    newest = here.desk.letters.page(Filter(groups=(group.id,)), 10).letters
    stand = here.desk.standings.of([group])
    lists, causes = here.desk.lists(console.masks(request)), here.desk.causes.of([group.id])[group.id]
    return here.page(
        request,
        "group.html",
        not_recorded=here.recorders().said(),
        group=group,
        around=stand.groups[0].around,
        next=stand.groups[0].next,
        trouble=stand.trouble,
        versions=here.desk.versions.of(group),
        again=here.desk.standings.died_again(group),
        letters=lists.lines(newest),
        act=act,
        causes=with_letters(causes, lists.lines(each.newest for each in causes)),
        trail=here.desk.notes.of_group(group.id),
        pictures=pictures,
    )


def common(request: Request) -> Response:
    """What the letters of a group have in common: counted when somebody asks for it."""
    here = console.of(request)
    group = here.desk.groups.one(request.path_params["id"])
    masks = console.masks(request)
    return here.page(request, "common.html", group=group, found=here.desk.common(masks).of(group), masked=bool(masks))
