"""The API of plans: make (replay, discard, archive, patch, copy, redrive), show, apply and stop."""

import json
import time
from typing import Any

from bridge.console import bulk_actions
from bridge.console.api import api_request, letter_json
from bridge.console.api.api_request import ApiAnswer, ApiRequest, quote_etag
from bridge.console.api.problem_details import API_ROOT
from bridge.console.api.schemas import plans_schema as shapes
from bridge.console.auth.role_check import check_discard, check_resumption
from bridge.deadletters.db.audit_table import AuditEntry
from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanKind, PlanOptions, PlanState, preview_plan
from bridge.deadletters.model.filter_syntax import parse_range_end
from bridge.deadletters.model.letter_view import format_moment
from bridge.deadletters.replay import redrive_plan as redriving
from bridge.deadletters.replay.letter_copy import CopyTarget
from bridge.deadletters.replay.plan_progress import PlanApproval, PlanProgress
from bridge.deadletters.replay.plan_service import SENDS
from bridge.errors import FilterFault, PatchRefused

_PLANS_LIST = "plans"
_ITEMS_LIST = "items"


def list_plans(asked: ApiRequest) -> ApiAnswer:
    """Return a page of plans, newest first."""
    limit = asked.query.limit
    found = asked.desk.plans.latest(limit + 1, api_request.read_number_cursor(_PLANS_LIST, asked.query.cursor))
    following = api_request.write_cursor(_PLANS_LIST, found[limit - 1].id) if len(found) > limit else None
    items = [_describe_plan(each) for each in asked.lists.plans(found[:limit])]
    return ApiAnswer(shapes.Plans.model_validate({"items": items, "next": following}))


def make_plan(asked: ApiRequest) -> ApiAnswer:
    """Make a plan of the selected letters."""
    body: shapes.Making = asked.body
    plan = asked.desk.plans.draft(
        PlanKind(body.what), letter_json.require_letters(asked.desk, asked.masks, body.letters), asked.who.name
    )
    return answer_made_plan(asked, plan.id)


def repeat_plan(asked: ApiRequest, done: AuditEntry) -> ApiAnswer:
    """Return the plan that was made."""
    asked.desk.plans.counted(done.plan_id or 0)
    return answer_made_plan(asked, done.plan_id or 0)


def show_plan(asked: ApiRequest) -> ApiAnswer:
    """Return a plan."""
    return _answer_plan(asked, asked.path["id"])


def list_outcomes(asked: ApiRequest) -> ApiAnswer:
    """Return the progress of each delivery of a plan."""
    limit, after = asked.query.limit, api_request.read_number_cursor(_ITEMS_LIST, asked.query.cursor) or 0
    states = [PlanItemState(each) for each in asked.query.state]
    found = asked.desk.progress.each(asked.path["id"], states, after, limit + 1)
    items = [
        each._asdict() | {"sent_at": format_moment(each.sent_at), "ended_at": format_moment(each.ended_at)}
        for each in asked.lists.standings(found[:limit])
    ]
    following = api_request.write_cursor(_ITEMS_LIST, found[limit - 1].position) if len(found) > limit else None
    return ApiAnswer(shapes.Outcomes.model_validate({"items": items, "next": following}))


def apply_plan(asked: ApiRequest) -> ApiAnswer:
    """Apply or resume a plan as it was seen."""
    found = asked.desk.progress.of(asked.path["id"])
    plan, body = found.plan, asked.body
    _require_seen(asked, found)
    if plan.state is PlanState.PLANNED:
        check_discard(plan, asked.who, {"why": body.why, "count": "" if body.count is None else str(body.count)})
    elif plan.state is PlanState.STOPPED:
        check_resumption(found, asked.who)
    decision = PlanApproval(found.key, found.left, body.rate, plan.what in SENDS and body.canary, body.why.strip())
    asked.desk.plans.decide(plan.id, asked.who.name, decision)
    return show_plan(asked)


def stop_plan(asked: ApiRequest) -> ApiAnswer:
    """Stop a plan; letters that it has not reached stay as they are."""
    found = asked.desk.progress.of(asked.path["id"])
    if asked.seen is not None:
        _require_seen(asked, found)
    asked.desk.plans.stop(found.plan.id, asked.who.name, asked.body.why.strip(), found.key)
    return show_plan(asked)


def repeat_decision(asked: ApiRequest, _done: AuditEntry) -> ApiAnswer:
    """Return the plan as it is after the decision."""
    return show_plan(asked)


def answer_made_plan(asked: ApiRequest, id_: int) -> ApiAnswer:
    """Return a plan that was just made, with its address."""
    answer = _answer_plan(asked, id_)
    return answer._replace(status=201, headers={**answer.headers, "location": f"{API_ROOT}/plans/{id_}"})


def build_plan_etag(found: PlanProgress) -> str:
    """Return the version of a plan; it changes with each action on it, and if another plan takes its letters."""
    return f"{found.key}-{found.left}"


def _require_seen(asked: ApiRequest, found: PlanProgress) -> None:
    last = found.trail[-1] if found.trail else None
    if last is None:
        asked.must_have_seen(build_plan_etag(found))
    else:
        asked.must_have_seen(build_plan_etag(found), last.by, format_moment(last.at), last.said)


def _describe_plan(plan: BulkPlan) -> dict[str, Any]:
    return plan.to_data() | {"is_over": plan.is_over}


def _answer_plan(asked: ApiRequest, id_: int) -> ApiAnswer:
    found = asked.lists.progress(asked.desk.progress.of(id_))
    plan = found.plan
    begun = plan.state not in (PlanState.PLANNED, PlanState.MAKING)
    waves = [
        {name: getattr(wave, name) for name in ("number", "outcomes", "stops_at", "is_now", "is_last")}
        for wave in found.waves
    ]
    made_ = shapes.OnePlan.model_validate(
        _describe_plan(plan)
        | {
            "etag": quote_etag(build_plan_etag(found)),
            "preview": None if begun else preview_plan(plan, found.gone)._asdict(),
            "waves": waves,
            "left_out": [each._asdict() for each in found.left_out],
            "trail": [each.to_data() for each in found.trail],
            "taken_up": found.taken_up,
        }
    )
    return ApiAnswer(made_, headers={"etag": quote_etag(build_plan_etag(found))})


#: The most deliveries of a range that one request selects: 60 us of a core each, if all of them are taken.
MAX_REDRIVEN_DELIVERIES = 300_000
_DIFFERENCES_LIST = "differences"


def patch_letters(asked: ApiRequest) -> ApiAnswer:
    """Make a plan of the values that a JSON Patch makes of letters."""
    body: shapes.Patching = asked.body
    chosen = letter_json.require_letters(asked.desk, asked.masks, body.letters)
    wish = bulk_actions.PatchRequest(chosen, _write_patch_text(body), body.why.strip(), body.force)
    return answer_made_plan(asked, bulk_actions.plan_patch(asked.desk, asked.masks, asked.who.name, wish).id)


def repeat_patch(asked: ApiRequest, done: AuditEntry) -> ApiAnswer:
    """Return the plan that was made, or make another if the first maker died before it was complete."""
    return _answer_again(asked, done) or patch_letters(asked)


def copy_letters(asked: ApiRequest) -> ApiAnswer:
    """Make a plan of the letters to copy; a request can name a topic, but no address of a Kafka."""
    body: shapes.Copying = asked.body
    chosen = letter_json.require_letters(asked.desk, asked.masks, body.letters)
    asked.masks.whole(chosen.topics, "copy")
    to = CopyTarget.configured() if body.kafka == "target" else None
    plan = asked.desk.copies.plan(chosen, body.topic, to, PlanOptions(), asked.who.name, body.why.strip())
    return answer_made_plan(asked, plan.id)


def repeat_copy(asked: ApiRequest, done: AuditEntry) -> ApiAnswer:
    """Return the plan that was made."""
    return answer_made_plan(asked, done.plan_id or 0)


def redrive_range(asked: ApiRequest) -> ApiAnswer:
    """Make a plan of the deliveries in a range of a source topic that must be sent again."""
    body: shapes.Redriving = asked.body
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
    return answer_made_plan(asked, plan.id)


def repeat_redrive(asked: ApiRequest, done: AuditEntry) -> ApiAnswer:
    """Return the plan that was made, or make another if the first maker died before it was complete."""
    return _answer_again(asked, done) or redrive_range(asked)


def list_differences(asked: ApiRequest) -> ApiAnswer:
    """Return how a plan changes the values of its letters."""
    id_, limit, after = (
        asked.path["id"],
        asked.query.limit,
        api_request.read_number_cursor(_DIFFERENCES_LIST, asked.query.cursor) or 0,
    )
    asked.desk.plans.one(id_)
    found = asked.desk.differing(asked.masks).page(id_, limit, after)
    following = None if found.next is None else api_request.write_cursor(_DIFFERENCES_LIST, found.next)
    items = [{"letter": each.letter_id, "difference": each.text} for each in found.differences]
    return ApiAnswer(shapes.Differences.model_validate({"items": items, "next": following}))


def _answer_again(asked: ApiRequest, done: AuditEntry) -> ApiAnswer | None:
    plan = asked.desk.plans.one(done.plan_id or 0)
    return None if plan.state is PlanState.MAKING else answer_made_plan(asked, plan.id)


def _write_patch_text(body: shapes.Patching) -> str:
    if isinstance(body.patch, str):
        return body.patch
    try:
        return json.dumps(body.patch, allow_nan=False)
    except ValueError:
        raise PatchRefused("A number of the patch is none that JSON has.") from None
