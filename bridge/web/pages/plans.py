"""Plans: listed, and made of letters that were chosen or of a filter."""

from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.plan.plan import Plan, State, What
from bridge.errors import FilterFault
from bridge.web import asked, console
from bridge.web.pages import meant, plan_figures, plan_words
from bridge.web.pages.deciding import number
from bridge.web.pages.once import once

#: Plans of a page.
ROWS: Final = 50
#: What is made of letters alone; other plans have commands of their own.
MADE: Final = (What.REPLAY, What.DISCARD, What.ARCHIVE)
#: What a form says that goes on to a patch, which is written before there is a plan.
PATCH: Final = "patch"


def listed(request: Request) -> Response:
    """The latest plans: what applies and what waits for somebody on top, then the newest first."""
    desk = console.of(request).desk
    found = desk.lists(console.masks(request)).plans(desk.plans.latest(ROWS))
    applying = sum(plan.state is State.APPLYING for plan in found)
    waiting = sum(plan.state is State.PLANNED for plan in found)
    return console.of(request).page(
        request,
        "plans.html",
        plans=sorted(found, key=_standing),
        heading=_heading(applying, waiting, len(found)),
        words=plan_words,
        figures=plan_figures,
        meant=meant,
    )


def new(request: Request) -> Response:
    """Freeze which letters are meant, and go on to where it is decided on: once, however often the form is sent.

    Raises:
        FilterFault: there is nothing that it could mean.
    """
    form = request.state.form
    what = form.get("what", "")
    if what == PATCH:
        return RedirectResponse(asked.address("/plans/patch", _of_form(form)), 303)
    if what not in MADE:
        raise FilterFault(f"{what!r} is nothing that is done with letters here: {', '.join(MADE)}.")
    desk = console.of(request).desk
    wanted = console.masks(request).check(asked.chosen(form))
    if unknown := desk.absent.of(wanted):
        raise FilterFault(" ".join(unknown))
    who = console.asking(request).name
    id_ = once(request, lambda desk: desk.plans.draft(What(what), wanted, who).id)
    seen = number(form.get("seen", "").replace(",", ""), None)
    return RedirectResponse(f"/plans/{id_}" + ("" if seen is None else f"?seen={seen}"), 303)


def _of_form(form: QueryParams) -> QueryParams:
    """The letters that a form of the list means, as an address has them.

    Raises:
        FilterFault: it says what is none, or nothing is ticked.
    """
    meant_ = asked.chosen(form)
    ticked = [("id", str(id_)) for id_ in meant_.ids]
    return QueryParams(asked.fields(form) if form.get("scope") == "filter" else ticked)


def _standing(plan: Plan) -> tuple[int, int]:
    return {State.APPLYING: 0, State.PLANNED: 1}.get(plan.state, 2), -plan.id


def _heading(applying: int, waiting: int, count: int) -> str:
    if not count:
        return "No plan was made yet"
    some = [f"{applying} {'plan is' if applying == 1 else 'plans are'} applying"] if applying else []
    if waiting:
        some.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} for somebody")
    return ", ".join(some) or "No plan is under way"
