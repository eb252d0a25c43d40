"""How the group stands: status, figures, where a record is, the ledger's proof, the trail."""

from typing import Any

from bridge.deadletters.questions.shown import moment
from bridge.errors import DeskUnavailable, NoSuchLetter, NothingAnswers, RequestRefused
from bridge.web import finding
from bridge.web import found as find
from bridge.web.api import cursors, written
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.shapes import standing as shapes
from bridge.web.proofs import Proof

_LIST = "trail"


def status(asked: Asked) -> Answer:
    """What the group consumes and how far, and what needs a person."""
    found = asked.console.looking.latest()
    if found is None:
        raise NothingAnswers("How the group stands is not known yet: ask again in a moment.")
    return Answer(shapes.Status.model_validate({**found.status, "asked_at": moment(found.at)}))


def stats(asked: Asked) -> Answer:
    """All letters in figures."""
    return Answer(shapes.Stats.model_validate(asked.desk.totals.stats().to_data()))


def found(asked: Asked) -> Answer:
    """Where a record is now."""
    text, desk = " ".join(asked.query.q.split()), asked.desk
    wanted, answer = finding.wanted(text, desk.routes.topics), find.Answer()
    plan: int | None = None
    match wanted:
        case finding.Plan():
            plan = desk.plans.one(wanted.id).id
        case finding.Letter():
            try:
                answer.letters = [desk.letters.one(wanted.id).listed]
            except (NoSuchLetter, DeskUnavailable):
                find.look(desk, finding.Key(None, text), answer, asked.masks)
        case _:
            find.look(desk, wanted, answer, asked.masks)
    letters = written.lines(asked, answer.letters)
    find.mask(asked.lists, answer)
    return Answer(
        shapes.Found(
            records=list(answer.records), letters=letters, looked=answer.looked, silent=answer.silent, plan=plan
        )
    )


def proofs(asked: Asked) -> Answer:
    """The last count of each topic."""
    return Answer(shapes.Audits(items=[_proof(each) for each in asked.console.proofs.all()]))


def prove(asked: Asked) -> Answer:
    """Count a topic now."""
    if asked.desk.settings.ledger_url is None:
        # Nothing that passes: who is told 503 asks again.
        raise RequestRefused("refused", "An audit reads the ledger, and the broker is no Redis: set LEDGER_URL.")
    return Answer(_proof(asked.console.proofs.count(asked.path["topic"])))


def trail(asked: Asked) -> Answer:
    """Who did what."""
    query: shapes.TrailQuery = asked.query
    page = asked.desk.trail.page(query.by.strip(), query.what, cursors.number(_LIST, query.cursor), query.limit)
    items: list[dict[str, Any]] = [each._asdict() | {"at": moment(each.at)} for each in page.entries]
    following = None if page.next is None else cursors.written(_LIST, page.next)
    return Answer(shapes.Trail.model_validate({"items": items, "next": following}))


def _proof(proof: Proof) -> shapes.Audit:
    return shapes.Audit.model_validate({**proof.audit.to_data(), "counted_at": moment(proof.at)})
