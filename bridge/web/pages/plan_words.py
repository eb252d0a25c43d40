"""What pages say of plans (pure)."""

from typing import Final, NamedTuple

from bridge.deadletters.plan.plan import UNDER_WAY, ItemState, Plan, State, What
from bridge.deadletters.questions.progress import Progress, Wave
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


def letters(count: int) -> str:
    """`1 letter`, `21,480 letters`."""
    return f"{count:,} letter{'' if count == 1 else 's'}"


def title(plan: Plan) -> str:
    """`replay 21,480 letters`."""
    verb = VERBS[plan.what][0].lower()
    return f"{verb} {letters(plan.counts.letters or sum(plan.outcomes.values()))}"


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


def heading(what: What, matched: int, will: int) -> str:
    """The question that a preview asks."""
    verb = VERBS[what][0]
    if not will:
        return f"Nothing to {verb.lower()}: of {letters(matched)} that matched, none can be {VERBS[what][1]}"
    if will == matched:
        return f"{verb} {letters(will)}?"
    return f"{verb} {will:,} of the {letters(matched)} that matched?"
