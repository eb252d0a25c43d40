"""What pages say of plans (pure)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bridge.deadletters.plan.plan import UNDER_WAY, ItemState, Plan, State, What
from bridge.deadletters.questions.progress import Progress, Wave
from bridge.deadletters.redrive.standing import sent
from bridge.upkeep.facts import letters
from bridge.web import pictures

#: What is done with letters, as a button says it, and as it was done.
VERBS: Final = {
    What.REPLAY: ("Replay", "replayed"),
    What.DISCARD: ("Discard", "discarded"),
    What.ARCHIVE: ("Archive", "archived"),
    What.COPY: ("Copy", "copied"),
    What.REDRIVE: ("Send again", "sent again"),
}


class Standing(NamedTuple):
    """A state in words, with its shape and colour."""

    look: str
    icon: str
    words: str


def things(plan: Plan, count: int) -> str:
    """What a plan is about: letters, or deliveries of a range, most of which have none."""
    return letters(count) if plan.what is not What.REDRIVE else f"{count:,} deliver{'y' if count == 1 else 'ies'}"


def doing(plan: Plan, what: str) -> str:
    """`Replay 2 letters`, `Copy 2 letters to sandbox`, `Send 30 deliveries again`.

    Parameters:
        what: how many of what, in words.
    """
    if plan.what is What.REDRIVE:
        return f"Send {what} again"
    if plan.what is What.COPY:
        return f"Copy {what} to {target(plan)}"
    return f"{VERBS[plan.what][0]} {what}"


def target(plan: Plan) -> str:
    """Where a copy goes: the topic, and which Kafka where that is another."""
    said = plan.options.target
    there = "another Kafka" if said.get("file") else said.get("addresses", "")
    return f"{said.get('topic', '')}{f' of {there}' if there else ''}"


def title(plan: Plan) -> str:
    """`replay 21,480 letters`."""
    words = doing(plan, things(plan, plan.counts.letters or sum(plan.outcomes.values())))
    return words[0].lower() + words[1:] + (", each with another value" if plan.counts.edits else "")


def state(plan: Plan) -> Standing:
    """How a plan stands."""
    if plan.state is State.APPLYING:
        words = f"wave {plan.wave + 1}" if plan.options.canary else "applying"
        return Standing("run", "run", words)
    if plan.state is State.STOPPED:
        return _stopped(plan)
    if plan.state is State.DONE:
        way = plan.count(*UNDER_WAY)
        return Standing("run", "run", f"all sent, {way:,} under way") if way else Standing(_end(plan), "ok", "applied")
    return {
        State.MAKING: Standing("off", "clock", "being made"),
        State.PLANNED: Standing("warn", "clock", "not applied"),
        State.FAILED: Standing("bad", "x", "failed"),
    }[plan.state]


def _stopped(plan: Plan) -> Standing:
    if plan.began_at is None and set(plan.outcomes) <= {ItemState.WAITING}:
        return Standing("off", "box", "thrown away")
    if plan.stopped.startswith("canary"):
        return Standing("bad", "halt", "stopped by its canary")
    return Standing("bad", "halt", "stopped, it came back" if plan.stopped.startswith("regression") else "stopped")


def _end(plan: Plan) -> str:
    if plan.what not in (What.REPLAY, What.REDRIVE):
        return "off"
    return "good" if plan.is_good else "warn"


class Sums(NamedTuple):
    """How far a plan is, in the six figures of its page."""

    done: int
    dead: int
    under_way: int
    untouched: int
    left_out: int
    unknown: int


def sums(plan: Plan) -> Sums:
    """Of a plan that is applied or was."""
    good = (ItemState.DONE, ItemState.DISCARDED) if plan.what is What.DISCARD else (ItemState.DONE,)
    out = (ItemState.SKIPPED, ItemState.REFUSED)
    return Sums(
        plan.count(*good),
        plan.count(ItemState.DEAD),
        plan.count(*UNDER_WAY),
        plan.count(ItemState.WAITING),
        plan.count(*out) if plan.what is What.DISCARD else plan.count(*out, ItemState.DISCARDED),
        plan.count(ItemState.UNKNOWN),
    )


def so_far(plan: Plan) -> str:
    """The same in a line, by the words of its page: `85 done, 3 dead again, 19 under way`."""
    said = ("done", "dead again", "under way", "not touched", "left out", "outcome unknown")
    return ", ".join(f"{count:,} {words}" for count, words in zip(sums(plan), said, strict=True) if count)


def bar(plan: Plan) -> list[pictures.Share]:
    """The same as a bar."""
    found = sums(plan)
    good = "good" if plan.what in (What.REPLAY, What.REDRIVE) else "plain"
    return pictures.shares(
        {
            good: found.done,
            "bad": found.dead,
            "run": found.under_way,
            "warn": found.unknown,
            "rest": found.untouched + found.left_out,
        }
    )


def wave_bar(wave: Wave) -> list[pictures.Share]:
    """How far a wave is."""
    ended = (ItemState.DEAD, ItemState.UNKNOWN)
    way, good, bad = wave.count(*UNDER_WAY), wave.count(ItemState.DONE), wave.count(*ended)
    return pictures.shares({"good": good, "bad": bad, "run": way, "rest": wave.letters - way - good - bad})


def result(wave: Wave) -> Standing:
    """How a wave has ended, or what would stop the plan at it."""
    dead, done = wave.count(ItemState.DEAD, ItemState.UNKNOWN), wave.count(ItemState.DONE)
    pending = wave.count(ItemState.WAITING, *UNDER_WAY)
    if wave.is_now:
        stops = "" if wave.is_last else f"; stops the plan at {wave.stops_at:,} dead"
        return Standing("run", "run", f"runs{stops}")
    if pending == wave.letters:
        return Standing("off", "clock", "not begun")
    if not wave.is_last and dead >= wave.stops_at:
        return Standing("bad", "halt", f"stopped the plan: {dead:,} of {wave.letters:,}")
    if pending:
        return Standing("run", "run", f"{pending:,} to come")
    return Standing("good", "ok", f"passed, {done:,} of {wave.letters:,}" if dead else "passed")


def known(plan: Plan) -> str:
    """`98.0 % of what is known`, where anything is."""
    found = sums(plan)
    ended = found.done + found.dead + found.unknown
    return f"{found.done / ended:.1%} of what is known".replace("%", " %") if ended else ""


def waits(found: Progress) -> str:
    """Why a plan that is to be done is not under way; "": it is."""
    plan = found.plan
    if found.alone_for is not None:
        return (
            "No recorder has taken it up: bridge deadletters record does what is applied here. Start it, or see why it "
            "does not answer."
        )
    if plan.state is State.APPLYING and plan.what is What.DISCARD and plan.began_at is None:
        return "It begins 10 s after it was applied. Until then everything is as it was."
    return ""


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
