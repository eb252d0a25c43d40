"""What pages say of plans (pure)."""

from typing import Final, NamedTuple

from bridge.deadletters.plan.plan import UNDER_WAY, ItemState, Plan, State, What
from bridge.deadletters.questions.progress import Progress
from bridge.upkeep.facts import letters

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
        ended = _stopped(plan)
        return ended._replace(words=ended.words + _way(plan))
    if plan.state is State.DONE:
        way = _way(plan)
        return Standing("run", "run", f"all sent{way}") if way else Standing(_end(plan), "ok", "applied")
    return {
        State.MAKING: Standing("off", "clock", "being made"),
        State.PLANNED: Standing("warn", "clock", "not applied"),
        State.FAILED: Standing("bad", "x", f"failed{_way(plan)}"),
    }[plan.state]


def _stopped(plan: Plan) -> Standing:
    if plan.began_at is None and set(plan.outcomes) <= {ItemState.WAITING}:
        return Standing("off", "box", "thrown away")
    if plan.stopped.startswith("canary"):
        return Standing("bad", "halt", "stopped by its canary")
    return Standing("bad", "halt", "stopped, it came back" if plan.stopped.startswith("regression") else "stopped")


def _way(plan: Plan) -> str:
    """What is in flight of a plan that sends nothing more."""
    way = plan.count(*UNDER_WAY)
    return f", {way:,} under way" if way else ""


def _end(plan: Plan) -> str:
    if plan.what not in (What.REPLAY, What.REDRIVE):
        return "off"
    return "good" if plan.is_good else "warn"


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
