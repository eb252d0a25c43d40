"""One plan: looked at, decided on, watched, stopped."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.masking.differing import Page
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.plan.plan import Plan, State
from bridge.deadletters.plan.preview import preview
from bridge.deadletters.plans.deciding import Decision
from bridge.deadletters.plans.plans import SENDS
from bridge.deadletters.questions.progress import Progress
from bridge.errors import PlanChanged, PlanRefused
from bridge.web import console
from bridge.web.console import Console
from bridge.web.differing import Row, rows
from bridge.web.discarding import check, check_again, too_many, was_applied
from bridge.web.live import Snapshot
from bridge.web.pages import meant, plan_figures, plan_words, previews
from bridge.web.pages.deciding import WHY, limited, number
from bridge.web.roles import Role

#: Letters of which a plan's page shows how it changes them, and of a page that has nothing else.
SHOWN: Final = 3
ROWS: Final = 20
#: From so many letters on a replay is a canary where nobody says otherwise.
CANARY_ABOVE: Final = 20
#: As what no plan was ever looked at.
_NO_KEY: Final = "-"


class Change(NamedTuple):
    """How a letter's value changes."""

    letter_id: int
    rows: list[Row]


def one(request: Request) -> Response:
    """The plan: what it would do, or how far it is."""
    seen = number(request.query_params.get("seen", ""), None)
    return _page(request, _of(request), typed={"seen": "" if seen is None else str(seen), **console.typed(request)})


def differences(request: Request) -> Response:
    """How it changes the values of its letters, some at a time, by their numbers."""
    here, after = console.of(request), number(request.query_params.get("after", ""), 0)
    plan = here.desk.plans.one(request.path_params["id"])
    page = here.desk.differing(console.masks(request)).page(plan.id, ROWS, after)
    found = _changes(page)
    return here.page(
        request, "plan-differences.html", plan=plan, words=plan_words, found=found, after=after, next=page.next
    )


def apply(request: Request) -> Response:
    """Have it done, or gone on with, as it was looked at: once, however often the form is sent."""
    form, who, found = request.state.form, console.asking(request), _of(request)
    plan = found.plan
    # What is asked of who decides is asked of this plan: if it has become another meanwhile, nothing is decided.
    key = found.key if form.get("act") == found.key else _NO_KEY
    try:
        if plan.state is State.PLANNED:
            check(plan, who, form)
        elif plan.state is State.STOPPED and key == found.key:
            check_again(found, who)
        console.of(request).desk.plans.decide(plan.id, who.name, _decision(plan, form, key))
    except PlanChanged as error:
        return _changed(request, error, "apply")
    except PlanRefused as error:
        return _page(request, _of(request), 400, str(error), form)
    return RedirectResponse(f"/plans/{plan.id}", 303)


def stop(request: Request) -> Response:
    """Stop it, or throw one away that was not begun: what it has not come to stays as it is."""
    form, who = request.state.form, console.asking(request)
    id_ = request.path_params["id"]
    try:
        console.of(request).desk.plans.stop(id_, who.name, limited(form.get("why", ""), WHY), form.get("act", _NO_KEY))
    except PlanRefused as error:
        return _changed(request, error, "stop")
    return RedirectResponse(f"/plans/{id_}", 303)


def live(here: Console, id_: str, masks: Masks) -> Callable[[], Snapshot]:
    """Makes what of a plan's page changes while it is applied.

    Raises:
        NoSuchPlan: there is none of that number.
    """
    number = int(id_) if id_.isascii() and id_.isdecimal() and len(id_) < 20 else 0
    here.desk.plans.one(number)
    return lambda: _snapshot(here, here.desk.lists(masks).progress(here.desk.progress.of(number)))


def _snapshot(here: Console, found: Progress) -> Snapshot:
    made, now = here.macros("plan-live.html"), here.clock()
    parts = {
        "p-state": made.state(found, plan_words),
        "p-since": made.since(found.plan, now),
        "p-waits": made.waits(found, plan_words),
        "p-sums": made.sums(found, plan_words, plan_figures),
        "p-left": made.left(found, plan_words, plan_figures),
        "p-waves": made.waves(found, plan_figures, now) if found.waves else "",
        "p-again-list": made.again(found),
        "p-out": made.left_out(found),
        "p-trail": made.trail(found, now),
    }
    return Snapshot(found.key, found.plan.is_over, {place: str(html).strip() for place, html in parts.items()})


def _decision(plan: Plan, form: Mapping[str, str], key: str) -> Decision:
    """What a form says; of a plan that is gone on with, the way stays the one it has."""
    return Decision(
        key=key,
        left=number(form.get("left", ""), -1),
        rate=_rate(form.get("rate", "")),
        canary=plan.what in SENDS and form.get("pace") == "canary",
        why=limited(form.get("why", ""), WHY),
    )


def _rate(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        raise PlanRefused(f"{text!r} is no number of letters a second: write 200, or nothing.") from None


def _first_changes(request: Request, plan: Plan) -> list[Change]:
    return _changes(console.of(request).desk.differing(console.masks(request)).page(plan.id, SHOWN))


def _changes(page: Page) -> list[Change]:
    return [Change(each.letter_id, rows(each.text)) for each in page.differences]


def _changed(request: Request, error: PlanRefused, wanted: str) -> Response:
    """Somebody was quicker; where that was the same person with the same wish, it is done already."""
    found = _of(request)
    last = found.trail[-1] if found.trail else None
    # Also where the plan has come to its end meanwhile: a second tab, a double click.
    if last is not None and (last.by, last.what) == (console.asking(request).name, wanted):
        return RedirectResponse(f"/plans/{found.plan.id}", 303)
    return _page(request, found, 409, str(error), request.state.form)


def _of(request: Request) -> Progress:
    desk = console.of(request).desk
    return desk.lists(console.masks(request)).progress(desk.progress.of(request.path_params["id"]))


def _page(
    request: Request, found: Progress, status: int = 200, trouble: str = "", typed: Mapping[str, str] | None = None
) -> Response:
    plan, who = found.plan, console.asking(request)
    undecided = plan.state in (State.PLANNED, State.MAKING)
    return console.of(request).page(
        request,
        "plan-preview.html" if undecided else "plan.html",
        status,
        found=found,
        plan=plan,
        trouble=trouble,
        changed=status == 409,
        was_applied=was_applied(found),
        typed=typed or {},
        words=plan_words,
        figures=plan_figures,
        asking=previews,
        meant=meant,
        preview=preview(plan, found.gone),
        differences=_first_changes(request, plan) if plan.counts.edits else (),
        canary=plan.what in SENDS and plan.counts.letters > CANARY_ABOVE,
        may=who.role >= Role.OPERATOR and not too_many(plan, who),
        needs=Role.ADMIN if too_many(plan, who) else Role.OPERATOR,
    )
