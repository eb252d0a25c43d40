"""Plans that patch letters, copy them elsewhere, or redrive a range; nothing is sent before they are applied."""

import json
import time

from bridge.deadletters.copying.target import Target
from bridge.deadletters.letters import written
from bridge.deadletters.plan.plan import Options, State
from bridge.deadletters.redrive import redrive as redriving
from bridge.deadletters.redrive.written import moment
from bridge.deadletters.store.trail import Entry
from bridge.errors import FilterFault, PatchRefused
from bridge.web import patching
from bridge.web.api import cursors, filters, plans
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.shapes import making as shapes

#: Deliveries of a range that are looked at while who asks waits: 60 us of a core each, where all of them are taken.
MOST_DELIVERIES = 300_000
_LIST = "differences"


def patch(asked: Asked) -> Answer:
    """Freeze what a JSON Patch makes of letters."""
    body: shapes.Patching = asked.body
    chosen = filters.named(asked.desk, asked.masks, body.letters)
    wish = patching.Wish(chosen, _text(body), body.why.strip(), body.force)
    return plans.made(asked, patching.planned(asked.desk, asked.masks, asked.who.name, wish).id)


def patched(asked: Asked, done: Entry) -> Answer:
    """The plan that was made; another, where its maker died before it was whole."""
    return _again(asked, done) or patch(asked)


def copy(asked: Asked) -> Answer:
    """Freeze which letters are copied, and to where: to no address that a request names."""
    body: shapes.Copying = asked.body
    chosen = filters.named(asked.desk, asked.masks, body.letters)
    asked.masks.whole(chosen.topics, "copy")
    to = Target.configured() if body.kafka == "target" else None
    plan = asked.desk.copies.plan(chosen, body.topic, to, Options(), asked.who.name, body.why.strip())
    return plans.made(asked, plan.id)


def copied(asked: Asked, done: Entry) -> Answer:
    """The plan that was made."""
    return plans.made(asked, done.plan_id or 0)


def redrive(asked: Asked) -> Answer:
    """Freeze what of a range of a source topic needs to be sent again."""
    body: shapes.Redriving = asked.body
    if body.key is not None and not asked.masks.searches_keys([body.topic]):
        raise FilterFault("Your role does not see the keys of this topic, so it is not searched by them.")
    now = time.time()
    meant = redriving.Asked(
        body.topic,
        moment(body.since, now),
        moment(body.until, now),
        tuple(body.partition),
        tuple(body.handler),
        None if body.key is None else written.key(body.key),
    )
    options = Options(again=body.again)
    plan = asked.desk.redrive.plan(meant, options, asked.who.name, body.why.strip(), most=MOST_DELIVERIES)
    return plans.made(asked, plan.id)


def redriven(asked: Asked, done: Entry) -> Answer:
    """The plan that was made; another, where its maker died before it was whole."""
    return _again(asked, done) or redrive(asked)


def differences(asked: Asked) -> Answer:
    """How a plan changes its letters' values."""
    id_, limit, after = asked.path["id"], asked.query.limit, cursors.number(_LIST, asked.query.cursor) or 0
    asked.desk.plans.one(id_)
    found = asked.desk.differing(asked.masks).page(id_, limit, after)
    following = None if found.next is None else cursors.written(_LIST, found.next)
    items = [{"letter": each.letter_id, "difference": each.text} for each in found.differences]
    return Answer(shapes.Differences.model_validate({"items": items, "next": following}))


def _again(asked: Asked, done: Entry) -> Answer | None:
    plan = asked.desk.plans.one(done.plan_id or 0)
    return None if plan.state is State.MAKING else plans.made(asked, plan.id)


def _text(body: shapes.Patching) -> str:
    if isinstance(body.patch, str):
        return body.patch
    try:
        return json.dumps(body.patch, allow_nan=False)
    except ValueError:
        raise PatchRefused("A number of the patch is none that JSON has.") from None
