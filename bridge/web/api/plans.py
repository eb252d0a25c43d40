"""Plans: made of letters, looked at, decided on, watched, stopped."""

from typing import Any

from bridge.deadletters.plan.plan import ItemState, Plan, State, What
from bridge.deadletters.plan.preview import preview
from bridge.deadletters.plans.deciding import Decision
from bridge.deadletters.plans.plans import SENDS
from bridge.deadletters.questions.progress import Progress
from bridge.deadletters.questions.shown import moment
from bridge.deadletters.store.trail import Entry
from bridge.web.api import cursors, filters
from bridge.web.api.asked import Answer, Asked, quoted
from bridge.web.api.problems import ROOT
from bridge.web.api.shapes import plans as shapes
from bridge.web.discarding import check, check_again

_LIST = "plans"
_ITEMS = "items"


def listed(asked: Asked) -> Answer:
    """A page of them, the newest first."""
    limit = asked.query.limit
    found = asked.desk.plans.latest(limit + 1, cursors.number(_LIST, asked.query.cursor))
    following = cursors.written(_LIST, found[limit - 1].id) if len(found) > limit else None
    items = [_data(each) for each in asked.lists.plans(found[:limit])]
    return Answer(shapes.Plans.model_validate({"items": items, "next": following}))


def make(asked: Asked) -> Answer:
    """Freeze which letters are meant."""
    body: shapes.Making = asked.body
    plan = asked.desk.plans.draft(What(body.what), filters.named(asked.desk, asked.masks, body.letters), asked.who.name)
    return made(asked, plan.id)


def made_before(asked: Asked, done: Entry) -> Answer:
    """The plan that was made."""
    asked.desk.plans.counted(done.plan_id or 0)
    return made(asked, done.plan_id or 0)


def one(asked: Asked) -> Answer:
    """A plan as it stands."""
    return _shown(asked, asked.path["id"])


def outcomes(asked: Asked) -> Answer:
    """How far it is with each of its deliveries."""
    limit, after = asked.query.limit, cursors.number(_ITEMS, asked.query.cursor) or 0
    states = [ItemState(each) for each in asked.query.state]
    found = asked.desk.progress.each(asked.path["id"], states, after, limit + 1)
    items = [
        each._asdict() | {"sent_at": moment(each.sent_at), "ended_at": moment(each.ended_at)}
        for each in asked.lists.standings(found[:limit])
    ]
    following = cursors.written(_ITEMS, found[limit - 1].position) if len(found) > limit else None
    return Answer(shapes.Outcomes.model_validate({"items": items, "next": following}))


def apply(asked: Asked) -> Answer:
    """Have it done, or gone on with, as it was seen."""
    found = asked.desk.progress.of(asked.path["id"])
    plan, body = found.plan, asked.body
    _must_have_seen(asked, found)
    if plan.state is State.PLANNED:
        check(plan, asked.who, {"why": body.why, "count": "" if body.count is None else str(body.count)})
    elif plan.state is State.STOPPED:
        check_again(found, asked.who)
    decision = Decision(found.key, found.left, body.rate, plan.what in SENDS and body.canary, body.why.strip())
    asked.desk.plans.decide(plan.id, asked.who.name, decision)
    return one(asked)


def stop(asked: Asked) -> Answer:
    """Stop it: what it had not come to stays as it is."""
    found = asked.desk.progress.of(asked.path["id"])
    if asked.seen is not None:
        _must_have_seen(asked, found)
    asked.desk.plans.stop(found.plan.id, asked.who.name, asked.body.why.strip(), found.key)
    return one(asked)


def decided(asked: Asked, _done: Entry) -> Answer:
    """The plan as it stands after that."""
    return one(asked)


def made(asked: Asked, id_: int) -> Answer:
    """A plan that was just made, and where it is."""
    answer = _shown(asked, id_)
    return answer._replace(status=201, headers={**answer.headers, "location": f"{ROOT}/plans/{id_}"})


def etag(found: Progress) -> str:
    """Changes with everything that is done with a plan, and where others take its letters."""
    return f"{found.key}-{found.left}"


def _must_have_seen(asked: Asked, found: Progress) -> None:
    last = found.trail[-1] if found.trail else None
    if last is None:
        asked.must_have_seen(etag(found))
    else:
        asked.must_have_seen(etag(found), last.by, moment(last.at), last.said)


def _data(plan: Plan) -> dict[str, Any]:
    return plan.to_data() | {"is_over": plan.is_over}


def _shown(asked: Asked, id_: int) -> Answer:
    found = asked.lists.progress(asked.desk.progress.of(id_))
    plan = found.plan
    begun = plan.state not in (State.PLANNED, State.MAKING)
    waves = [
        {name: getattr(wave, name) for name in ("number", "outcomes", "stops_at", "is_now", "is_last")}
        for wave in found.waves
    ]
    made_ = shapes.OnePlan.model_validate(
        _data(plan)
        | {
            "etag": quoted(etag(found)),
            "preview": None if begun else preview(plan, found.gone)._asdict(),
            "waves": waves,
            "left_out": [each._asdict() for each in found.left_out],
            "trail": [each.to_data() for each in found.trail],
            "taken_up": found.taken_up,
        }
    )
    return Answer(made_, headers={"etag": quoted(etag(found))})
