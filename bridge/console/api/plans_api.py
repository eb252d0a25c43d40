"""The API of plans: make (replay, discard, archive, patch, copy, redrive), show, apply and stop."""

import json
import time
from typing import Any, Final

from bridge.console import bulk_actions
from bridge.console.api import api_operation, letter_json
from bridge.console.api.api_operation import ApiRequest, Effect, OperationTable, quote_etag
from bridge.console.api.schemas import plans_schema as shapes
from bridge.console.api.schemas.common_schema import PageQuery
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import ScopeRule, check_discard, check_discard_role, check_resumption
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.bulk_plan import (
    NOT_BEGUN,
    BulkPlan,
    PlanItemState,
    PlanKind,
    PlanOptions,
    PlanState,
    preview_plan,
)
from bridge.deadletters.model.filter_syntax import parse_range_end
from bridge.deadletters.model.letter_view import format_moment
from bridge.deadletters.replay import redrive_plan as redriving
from bridge.deadletters.replay.copy_action import CopyTarget
from bridge.deadletters.replay.plan_progress import PlanApproval, PlanProgress
from bridge.deadletters.replay.plan_service import SENDS
from bridge.errors import FilterFault, PatchRefused

operations: Final = OperationTable()

_SERVERS: Final = WaitKind.SERVERS
_PLANS_LIST: Final = "plans"
_ITEMS_LIST: Final = "items"


@operations.declare("GET /plans", may.VIEW, "listPlans", scope=ScopeRule.NARROWED)
def list_plans(asked: ApiRequest, query: PageQuery) -> shapes.Plans:
    """Return the plans, newest first."""
    limit = query.limit
    found = asked.desk.plans.latest(limit + 1, api_operation.read_number_cursor(_PLANS_LIST, query.cursor))
    following = api_operation.write_cursor(_PLANS_LIST, found[limit - 1].id) if len(found) > limit else None
    items = [_list_plan_fields(each) for each in asked.lists.plans(found[:limit])]
    return shapes.Plans.model_validate({"items": items, "next": following})


def count_made_plan(asked: ApiRequest) -> shapes.OnePlan:
    """Return the plan that an earlier request made, with the counts that its maker may not have come to."""
    return describe_plan(asked, asked.desk.plans.counted(asked.made_plan).id)


def show_made_plan(asked: ApiRequest) -> shapes.OnePlan:
    """Return the plan that an earlier request made."""
    return describe_plan(asked, asked.made_plan)


def find_complete_plan(asked: ApiRequest) -> shapes.OnePlan | None:
    """Return the plan that an earlier request made; `None` if its maker died before it was complete."""
    plan = asked.desk.plans.one(asked.made_plan)
    return None if plan.state is PlanState.MAKING else describe_plan(asked, plan.id)


@operations.declare(
    "POST /plans",
    may.MAKE_PLAN,
    "makePlan",
    Effect(count_made_plan),
    waits=_SERVERS,
    status=201,
    scope=ScopeRule.NARROWED,
)
def make_plan(asked: ApiRequest, body: shapes.Making) -> shapes.OnePlan:
    """Freeze which letters are to be replayed, discarded or archived, and preview it; nothing is done yet."""
    plan = asked.desk.plans.draft(
        PlanKind(body.what), letter_json.require_letters(asked.desk, asked.masks, body.letters), asked.who.name
    )
    return describe_plan(asked, plan.id)


@operations.declare("GET /plans/{id:int}", may.VIEW, "getPlan", scope=ScopeRule.NARROWED)
def show_plan(asked: ApiRequest) -> shapes.OnePlan:
    """Return a plan: its preview, or its progress."""
    return describe_plan(asked, asked.path["id"])


@operations.declare("GET /plans/{id:int}/outcomes", may.VIEW, "listOutcomes", scope=ScopeRule.NARROWED)
def list_outcomes(asked: ApiRequest, query: shapes.OutcomesQuery) -> shapes.Outcomes:
    """Return the progress of each delivery of a plan."""
    limit, after = query.limit, api_operation.read_number_cursor(_ITEMS_LIST, query.cursor) or 0
    states = [PlanItemState(each) for each in query.state]
    found = asked.desk.progress.each(asked.path["id"], states, after, limit + 1)
    items = [
        each._asdict() | {"sent_at": format_moment(each.sent_at), "ended_at": format_moment(each.ended_at)}
        for each in asked.lists.standings(found[:limit])
    ]
    following = api_operation.write_cursor(_ITEMS_LIST, found[limit - 1].position) if len(found) > limit else None
    return shapes.Outcomes.model_validate({"items": items, "next": following})


@operations.declare(
    "POST /plans/{id:int}/apply", may.APPLY_PLAN, "applyPlan", Effect(show_plan, "must"), scope=ScopeRule.NARROWED
)
def apply_plan(asked: ApiRequest, body: shapes.Applying) -> shapes.OnePlan:
    """Have `bridge deadletters record` apply or resume a plan.

    A discard of more than 1,000 letters takes an admin; it begins after 10 seconds. A plan of more than
    `DEADLETTERS_APPROVAL_ABOVE` deliveries stays `planned` and is `awaiting` then, until somebody other than its
    planner applies it, which approves it as it is, or stops it, which rejects it.
    """
    found = asked.desk.progress.read_progress(asked.path["id"])
    plan = found.plan
    _require_seen(asked, found)
    if plan.state is PlanState.PLANNED:
        check_discard(plan, asked.who, {"why": body.why, "count": "" if body.count is None else str(body.count)})
    elif plan.state is PlanState.AWAITING:
        check_discard_role(plan, asked.who)
    elif plan.state is PlanState.STOPPED:
        check_resumption(found, asked.who)
    decision = PlanApproval(found.key, found.left, body.rate, plan.what in SENDS and body.canary, body.why.strip())
    asked.desk.plans.decide(plan.id, asked.who.name, decision)
    return show_plan(asked)


@operations.declare(
    "POST /plans/{id:int}/stop", may.STOP_PLAN, "stopPlan", Effect(show_plan, "may"), scope=ScopeRule.NARROWED
)
def stop_plan(asked: ApiRequest, body: shapes.Stopping) -> shapes.OnePlan:
    """Stop a plan, or reject one that awaits a second person; letters that it has not reached stay as they are."""
    found = asked.desk.progress.read_progress(asked.path["id"])
    if asked.seen is not None:
        _require_seen(asked, found)
    asked.desk.plans.stop(found.plan.id, asked.who.name, body.why.strip(), found.key)
    return show_plan(asked)


def build_plan_etag(found: PlanProgress) -> str:
    """Return the version of a plan; it changes with each action on it, and if another plan takes its letters."""
    return f"{found.key}-{found.left}"


def _require_seen(asked: ApiRequest, found: PlanProgress) -> None:
    last = found.trail[-1] if found.trail else None
    if last is None:
        asked.must_have_seen(build_plan_etag(found))
    else:
        asked.must_have_seen(build_plan_etag(found), last.by, format_moment(last.at), last.said)


def _list_plan_fields(plan: BulkPlan) -> dict[str, Any]:
    awaiting = plan.state is PlanState.AWAITING
    # Programs of before know no other states.
    state = PlanState.PLANNED if awaiting else plan.state
    return plan.to_data() | {"state": str(state), "awaiting": awaiting, "is_over": plan.is_over}


def describe_plan(asked: ApiRequest, id_: int) -> shapes.OnePlan:
    """Return a plan as an answer."""
    found = asked.lists.progress(asked.desk.progress.read_progress(id_))
    plan = found.plan
    begun = plan.state not in NOT_BEGUN
    waves = [
        {name: getattr(wave, name) for name in ("number", "outcomes", "stops_at", "is_now", "is_last")}
        for wave in found.waves
    ]
    return shapes.OnePlan.model_validate(
        _list_plan_fields(plan)
        | {
            "etag": quote_etag(build_plan_etag(found)),
            "preview": None if begun else preview_plan(plan, found.gone)._asdict(),
            "waves": waves,
            "left_out": [each._asdict() for each in found.left_out],
            "trail": [each.to_data() for each in found.trail],
            "taken_up": found.taken_up,
        }
    )


#: The most deliveries of a range that one request selects: 60 us of a core each, if all of them are taken.
MAX_REDRIVEN_DELIVERIES = 300_000
_DIFFERENCES_LIST = "differences"


@operations.declare(
    "POST /plans/patch", may.MAKE_PLAN, "planPatch", Effect(find_complete_plan), status=201, scope=ScopeRule.NARROWED
)
def patch_letters(asked: ApiRequest, body: shapes.Patching) -> shapes.OnePlan:
    """Freeze what a JSON Patch makes of at most 20,000 open letters; nothing is sent yet.

    They go back with that if their handlers take it.
    """
    chosen = letter_json.require_letters(asked.desk, asked.masks, body.letters)
    wish = bulk_actions.PatchRequest(chosen, _write_patch_text(body), body.why.strip(), body.force)
    return describe_plan(asked, bulk_actions.plan_patch(asked.desk, asked.masks, asked.who.name, wish).id)


@operations.declare("POST /plans/copy", may.MAKE_PLAN, "planCopy", Effect(show_made_plan), waits=_SERVERS, status=201)
def copy_letters(asked: ApiRequest, body: shapes.Copying) -> shapes.OnePlan:
    """Freeze which letters are copied to another topic, which changes nothing for them here; nothing is sent yet."""
    chosen = letter_json.require_letters(asked.desk, asked.masks, body.letters)
    asked.masks.whole(chosen.topics, "copy")
    to = CopyTarget.configured() if body.kafka == "target" else None
    plan = asked.desk.copies.plan(chosen, body.topic, to, PlanOptions(), asked.who.name, body.why.strip())
    return describe_plan(asked, plan.id)


@operations.declare(
    "POST /plans/redrive", may.MAKE_PLAN, "planRedrive", Effect(find_complete_plan), waits=_SERVERS, status=201
)
def redrive_range(asked: ApiRequest, body: shapes.Redriving) -> shapes.OnePlan:
    """Freeze what needs to be sent again of at most 300,000 deliveries of a source topic; nothing is sent yet."""
    if body.key is not None and not asked.masks.searches_keys([body.topic]):
        raise FilterFault("Your role does not see the keys of this topic, so it is not searched by them.")
    now = time.time()
    meant = redriving.RedriveRequest(
        body.topic,
        parse_range_end(body.since, now),
        parse_range_end(body.until, now),
        tuple(body.partition),
        tuple(body.handler),
        None if body.key is None else filter_syntax.parse_key(body.key),
    )
    options = PlanOptions(again=body.again)
    plan = asked.desk.redrive.plan(meant, options, asked.who.name, body.why.strip(), most=MAX_REDRIVEN_DELIVERIES)
    return describe_plan(asked, plan.id)


@operations.declare("GET /plans/{id:int}/differences", may.VIEW, "listDifferences", scope=ScopeRule.NARROWED)
def list_differences(asked: ApiRequest, query: shapes.DifferencesQuery) -> shapes.Differences:
    """Return how a plan changes the values of its letters."""
    after = api_operation.read_number_cursor(_DIFFERENCES_LIST, query.cursor) or 0
    asked.desk.plans.one(asked.path["id"])
    found = asked.desk.differing(asked.masks).page(asked.path["id"], query.limit, after)
    following = None if found.next is None else api_operation.write_cursor(_DIFFERENCES_LIST, found.next)
    items = [{"letter": each.letter_id, "difference": each.text} for each in found.differences]
    return shapes.Differences.model_validate({"items": items, "next": following})


def _write_patch_text(body: shapes.Patching) -> str:
    if isinstance(body.patch, str):
        return body.patch
    try:
        return json.dumps(body.patch, allow_nan=False)
    except ValueError:
        raise PatchRefused("A number of the patch is none that JSON has.") from None
