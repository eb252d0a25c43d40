"""The pages of plans: the list, a new plan, its preview, and its decision, progress and stop."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console, filter_address
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import (
    check_discard,
    check_discard_role,
    check_resumption,
    exceeds_discard_limit,
    was_applied,
)
from bridge.console.confirmation import UndoForm, take_back
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import plan_view
from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.console.pages.form_submission import MAX_WHY, answer_done, check_length, read_number, submit_once
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.masked_edit import DifferencePage
from bridge.deadletters.model.bulk_plan import NOT_BEGUN, BulkPlan, PlanKind, PlanState, preview_plan
from bridge.deadletters.model.second_person import is_planner
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.plan_progress import PlanApproval, PlanProgress
from bridge.deadletters.replay.plan_service import SENDS
from bridge.errors import FilterFault, PlanChanged, PlanRefused

#: The plans of a page.
LIST_ROWS: Final = 50
#: The plans that a form of letters can make; others have commands of their own.
DRAFTED_ACTIONS: Final = (PlanKind.REPLAY, PlanKind.DISCARD, PlanKind.ARCHIVE)
#: The value of a form that continues to the patch page, where the plan is made.
PATCH_ACTION: Final = "patch"
#: The value of a form of groups that continues to the page that marks them as fixed.
FIXED_ACTION: Final = "fixed"


def list_plans(request: Request) -> Response:
    """List the latest plans: running ones and those that wait for a decision on top, then the newest first."""
    desk = console.get_console(request).desk
    found = desk.lists(console.get_masks(request)).plans(desk.plans.latest(LIST_ROWS))
    applying = sum(plan.state is PlanState.APPLYING for plan in found)
    waiting = sum(plan.state in (PlanState.PLANNED, PlanState.AWAITING) for plan in found)
    return console.get_console(request).page(
        request,
        "plans.html",
        plans=sorted(found, key=_get_sort_key),
        heading=_build_heading(applying, waiting, len(found)),
        plan_view=plan_view,
    )


def draft_plan(request: Request) -> Response:
    """Make a plan of the selected letters and continue there; a form that is sent twice makes one plan.

    Raises:
        FilterFault: no letters are selected.
    """
    form = request.state.form
    what = form.get("what", "")
    if what == PATCH_ACTION:
        return RedirectResponse(filter_address.build_address("/plans/patch", _read_selection(form)), 303)
    if what == FIXED_ACTION:
        groups = [("group", str(id_)) for id_ in filter_address.read_group_ids(form)]
        return RedirectResponse(filter_address.build_address("/groups/fixed", QueryParams(groups)), 303)
    if what not in DRAFTED_ACTIONS:
        raise FilterFault(f"{what!r} is nothing that is done with letters here: {', '.join(DRAFTED_ACTIONS)}.")
    desk = console.get_console(request).desk
    wanted = console.get_masks(request).check(filter_address.read_chosen_filter(form))
    if unknown := desk.absent.describe_absent(wanted):
        raise FilterFault(" ".join(unknown))
    who = console.get_principal(request).name
    id_ = submit_once(request, lambda desk: desk.plans.draft(PlanKind(what), wanted, who).id)
    seen = read_number(form.get("seen", "").replace(",", ""), None)
    return RedirectResponse(f"/plans/{id_}" + ("" if seen is None else f"?seen={seen}"), 303)


def _read_selection(form: QueryParams) -> QueryParams:
    """Return the letters that a form of the list means, as query parameters.

    Raises:
        FilterFault: a field is malformed, or nothing is ticked.
    """
    meant_ = filter_address.read_chosen_filter(form)
    if form.get("scope") == "filter":
        return QueryParams(filter_address.list_filter_fields(form))
    ticked = [("id", str(id_)) for id_ in meant_.ids]
    of_groups = [*(("group", str(id_)) for id_ in meant_.groups), ("status", str(LetterStatus.OPEN))]
    return QueryParams(of_groups if meant_.groups else ticked)


def _get_sort_key(plan: BulkPlan) -> tuple[int, int]:
    return {PlanState.APPLYING: 0, PlanState.AWAITING: 1, PlanState.PLANNED: 2}.get(plan.state, 3), -plan.id


def _build_heading(applying: int, waiting: int, count: int) -> str:
    if not count:
        return "No plan was made yet"
    some = [f"{applying} {'plan is' if applying == 1 else 'plans are'} applying"] if applying else []
    if waiting:
        some.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} for somebody")
    return ", ".join(some) or "No plan waits or runs"


#: The changed values on a plan's page, and on the page of differences.
SHOWN_CHANGES: Final = 3
DIFFERENCE_ROWS: Final = 20
#: The earlier runs on a plan's page.
SHOWN_RUNS: Final = 5
#: The number of letters from which a replay is a canary by default.
CANARY_ABOVE: Final = 20
#: A version that no plan has.
_NO_KEY: Final = "-"


class ValueChange(NamedTuple):
    """A change of a letter's value."""

    letter_id: int
    rows: list[DiffRow]


def show_plan(request: Request) -> Response:
    """Show the preview or the progress of a plan."""
    seen = read_number(request.query_params.get("seen", ""), None)
    return _render_plan(
        request,
        _read_progress(request),
        typed={"seen": "" if seen is None else str(seen), **console.get_typed_values(request)},
    )


def show_differences(request: Request) -> Response:
    """Show how a plan changes the values of its letters, a page at a time."""
    here, after = console.get_console(request), read_number(request.query_params.get("after", ""), 0)
    plan = here.desk.plans.one(request.path_params["id"])
    page = here.desk.differing(console.get_masks(request)).page(plan.id, DIFFERENCE_ROWS, after)
    found = _list_changes(page)
    return here.page(
        request, "plan-differences.html", plan=plan, plan_view=plan_view, found=found, after=after, next=page.next
    )


def apply_plan(request: Request) -> Response:
    """Apply or resume a plan as it was seen; a form that is sent twice applies it once."""
    form, who, found = request.state.form, console.get_principal(request), _read_progress(request)
    plan = found.plan
    # The permission is checked for this version: if the plan has changed meanwhile, nothing is decided.
    key = found.key if form.get("act") == found.key else _NO_KEY
    try:
        if plan.state is PlanState.PLANNED:
            check_discard(plan, who, form)
        elif plan.state is PlanState.AWAITING:
            check_discard_role(plan, who)
        elif plan.state is PlanState.STOPPED and key == found.key:
            check_resumption(found, who)
        console.get_console(request).desk.plans.decide(plan.id, who.name, _read_decision(plan, form, key))
    except PlanChanged as error:
        return _answer_conflict(request, error, "apply", "request")
    except PlanRefused as error:
        return _render_plan(request, _read_progress(request), 400, str(error), form)
    return _answer_decided(request, "Applied" if plan.state is not PlanState.STOPPED else "Resumed")


def stop_plan(request: Request) -> Response:
    """Stop a plan, or discard one that was not applied; letters that it has not reached stay as they are."""
    form, who = request.state.form, console.get_principal(request)
    id_ = request.path_params["id"]
    try:
        console.get_console(request).desk.plans.stop(
            id_, who.name, check_length(form.get("why", ""), MAX_WHY), form.get("act", _NO_KEY)
        )
    except PlanRefused as error:
        return _answer_conflict(request, error, "stop", "reject")
    return _answer_decided(request, "Stopped")


def _answer_decided(request: Request, done: str) -> Response:
    """Continue at the plan's page, with the opposite act as a button if there is one now."""
    found, who = _read_progress(request), console.get_principal(request)
    plan, address = found.plan, f"/plans/{found.plan.id}"
    if plan.state is PlanState.AWAITING:
        withdraw = UndoForm("Withdraw it", f"{address}/stop", {"act": found.key, "why": "withdrawn"})
        return answer_done(request, address, f"Plan {plan.id} awaits a second person.", withdraw)
    undo = None
    # A discard has its own ten seconds, with a button on the plan's page.
    if plan.state is PlanState.APPLYING and plan.what is not PlanKind.DISCARD:
        undo = UndoForm("Stop it", f"{address}/stop", {"act": found.key, "why": take_back(done.lower())})
    elif plan.state is PlanState.STOPPED and was_applied(found) and not exceeds_discard_limit(plan, who):
        undo = UndoForm("Continue it", f"{address}/apply", {"act": found.key})
    elif plan.state is PlanState.STOPPED:
        done = "Thrown away:"
    return answer_done(request, address, f"{done} plan {plan.id}.", undo)


def watch_plan(here: Console, id_: str, masks: LetterMasks) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of a plan's page.

    Raises:
        NoSuchPlan: no plan has this number.
    """
    number = int(id_) if id_.isascii() and id_.isdecimal() and len(id_) < 20 else 0
    here.desk.plans.one(number)
    return lambda: _take_snapshot(here, here.desk.lists(masks).progress(here.desk.progress.read_progress(number)))


def _take_snapshot(here: Console, found: PlanProgress) -> LiveSnapshot:
    made, now = here.macros("plan-progress.html"), here.clock()
    parts = {
        "p-state": made.state(found, plan_view),
        "p-since": made.since(found.plan, now),
        "p-waits": made.waits(found, plan_view, _count_queued(here, found.plan)),
        "p-sums": made.sums(found, plan_view),
        "p-left": made.left(found, plan_view),
        "p-waves": made.waves(found, plan_view, now) if found.waves else "",
        "p-again-list": made.again(found),
        "p-out": made.left_out(found),
        "p-trail": made.trail(found, now),
    }
    return LiveSnapshot(found.key, found.plan.is_over, {place: str(html).strip() for place, html in parts.items()})


def _count_queued(here: Console, plan: BulkPlan) -> dict[str, int]:
    """Return the messages in the queues of a plan's handlers, as far as the status of the group has them already."""
    known = here.status_cache.read(0.0) if plan.state is PlanState.APPLYING else None
    queues = {} if known is None else known.status.get("queues") or {}
    handlers = [here.desk.routes.handlers.get(name) for name in plan.counts.handlers or plan.counts.stands]
    names = {handler.queue for handler in handlers if handler is not None}
    return {name: found["messages"] for name, found in queues.items() if name in names and found["messages"]}


def _read_decision(plan: BulkPlan, form: Mapping[str, str], key: str) -> PlanApproval:
    """Return the options in a form; a resumed plan keeps its own."""
    return PlanApproval(
        key=key,
        left=read_number(form.get("left", ""), -1),
        rate=_read_rate(form.get("rate", "")),
        canary=plan.what in SENDS and form.get("pace") == "canary",
        why=check_length(form.get("why", ""), MAX_WHY),
    )


def _read_rate(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        raise PlanRefused(f"{text!r} is no number of letters a second: write 200, or nothing.") from None


def _list_first_changes(request: Request, plan: BulkPlan) -> list[ValueChange]:
    return _list_changes(
        console.get_console(request).desk.differing(console.get_masks(request)).page(plan.id, SHOWN_CHANGES)
    )


def _list_changes(page: DifferencePage) -> list[ValueChange]:
    return [ValueChange(each.letter_id, build_diff_rows(each.text)) for each in page.differences]


def _answer_conflict(request: Request, error: PlanRefused, *wanted: str) -> Response:
    """Show the plan again if another user was faster; accept it if the same user did the same."""
    found = _read_progress(request)
    last = found.trail[-1] if found.trail else None
    # Also if the plan has ended meanwhile: a second tab, a double click.
    if last is not None and last.by == console.get_principal(request).name and last.what in wanted:
        return RedirectResponse(f"/plans/{found.plan.id}", 303)
    return _render_plan(request, found, 409, str(error), request.state.form)


def _read_progress(request: Request) -> PlanProgress:
    desk = console.get_console(request).desk
    return desk.lists(console.get_masks(request)).progress(desk.progress.read_progress(request.path_params["id"]))


def _render_plan(
    request: Request, found: PlanProgress, status: int = 200, trouble: str = "", typed: Mapping[str, str] | None = None
) -> Response:
    plan, who = found.plan, console.get_principal(request)
    desk, undecided = console.get_console(request).desk, plan.state in NOT_BEGUN
    return console.get_console(request).page(
        request,
        "plan-preview.html" if undecided else "plan.html",
        status,
        found=found,
        plan=plan,
        trouble=trouble,
        changed=status == 409,
        was_applied=was_applied(found),
        typed=typed or {},
        plan_view=plan_view,
        preview=preview_plan(plan, found.gone),
        queued=_count_queued(console.get_console(request), plan),
        earlier=()
        if undecided
        else desk.lists(console.get_masks(request)).plans(desk.plans.earlier(plan.id, SHOWN_RUNS)),
        differences=_list_first_changes(request, plan) if plan.counts.edits else (),
        is_planner=is_planner(plan, who.name),
        canary=plan.what in SENDS and plan.counts.letters > CANARY_ABOVE,
        may=who.role >= may.APPLY_PLAN and not exceeds_discard_limit(plan, who),
        needs=may.DISCARD_MORE if exceeds_discard_limit(plan, who) else may.APPLY_PLAN,
    )
