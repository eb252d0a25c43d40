"""What a plan's page asks and shows before it is applied (pure)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bridge.deadletters.plan.plan import Plan, What
from bridge.deadletters.redrive.standing import sent
from bridge.upkeep.facts import letters
from bridge.web.pages.plan_words import VERBS, doing, things


def heading(plan: Plan, matched: int, will: int) -> str:
    """The question that a preview asks."""
    if not will:
        if plan.what is What.REDRIVE:
            return "Nothing to send again: no delivery of this range needs it"
        verb, done = VERBS[plan.what]
        return f"Nothing to {verb.lower()}: of {letters(matched)} that matched, none can be {done}"
    count = things(plan, matched)
    some = count if will == matched else f"{will:,} of {'' if plan.what is What.REDRIVE else 'the '}{count}"
    that = "" if will == matched or plan.what is What.REDRIVE else " that matched"
    return f"{doing(plan, some + that)}{', each with another value' if plan.counts.edits else ''}?"


class Left(NamedTuple):
    """Letters that a patch leaves as they are.

    Attributes:
        words: what is the matter with them; `why`: in the words of their values, or of their handler.
        examples: letters.
    """

    words: str
    why: str
    letters: int
    examples: Sequence[int]


#: What a patch may find, as `Pass.to_data` has it.
_UNPATCHED: Final = {
    "unchanged": "The patch changes nothing of them",
    "no_json": "They cannot be patched",
    "not_applied": "The patch does not apply",
    "not_valid": "Their handlers would not take them after it",
}


def unpatched(plan: Plan) -> list[Left]:
    """Why letters are left out by a patch, the reasons of each kind beside each other."""
    found, edits = [], plan.counts.edits
    for name, words in _UNPATCHED.items():
        reasons = edits.get(f"{name}_reasons") or [{"why": "", "count": edits.get(name, 0), "letters": ()}]
        found += [Left(words, each["why"], each["count"], each["letters"]) for each in reasons if each["count"]]
    return found


#: How deliveries of a range stand (bridge.deadletters.redrive.standing), and what a redrive does with them.
_STANDS: Final = {
    "dead": "dead",
    "unaccounted": "unaccounted for: committed, and nobody will run it",
    "done": "done",
    "discarded": "discarded",
    "unknown": "not known any more: it may be done",
    "handed": "in flight",
    "parked": "parked",
    "open": "not read yet: it goes out by itself",
    "gap": "no record lies there",
}


class Stands(NamedTuple):
    """Deliveries of a range that stand alike."""

    handler: str
    words: str
    deliveries: int
    is_sent: bool


def stands(plan: Plan) -> list[Stands]:
    """How the deliveries of a range stood when it was looked through."""
    wanted = sent(again=plan.options.again)
    return [
        Stands(handler, words, of[name], name in wanted)
        for handler, of in plan.counts.stands.items()
        for name, words in _STANDS.items()
        if of.get(name)
    ]
