"""How far plans and their waves are, in figures, bars and a line (pure)."""

from typing import NamedTuple

from bridge.deadletters.plan.plan import UNDER_WAY, ItemState, Plan, What
from bridge.deadletters.questions.progress import Wave
from bridge.web import pictures
from bridge.web.pages.plan_words import Standing


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
    pending, way = wave.count(ItemState.WAITING, *UNDER_WAY), wave.count(*UNDER_WAY)
    if wave.is_now:
        stops = "" if wave.is_last else f"; stops the plan at {wave.stops_at:,} dead"
        return Standing("run", "run", f"runs{stops}")
    if pending == wave.letters and not way:
        return Standing("off", "clock", "not begun")
    if not wave.is_last and dead >= wave.stops_at:
        return Standing("bad", "halt", f"stopped the plan: {dead:,} of {wave.letters:,}")
    if pending:
        if way:
            return Standing("run", "run", f"sent, {way:,} under way")
        return Standing("off", "clock", f"{pending:,} not sent")
    return Standing("good", "ok", f"passed, {done:,} of {wave.letters:,}" if dead else "passed")


def known(plan: Plan) -> str:
    """`98.0 % of what is known`, where anything is."""
    found = sums(plan)
    ended = found.done + found.dead + found.unknown
    return f"{found.done / ended:.1%} of what is known".replace("%", " %") if ended else ""
