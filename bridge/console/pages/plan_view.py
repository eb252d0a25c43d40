"""Plans as pages show them: titles, states, figures, bars, and the question of a preview (pure)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from bridge.console.pages import charts
from bridge.deadletters.model import letter_filter
from bridge.deadletters.model.bulk_plan import UNDER_WAY, BulkPlan, PlanItemState, PlanKind, PlanState
from bridge.deadletters.replay.plan_progress import PlanProgress, WaveProgress
from bridge.deadletters.replay.redrive_range import find_sent_stands
from bridge.formats.text_forms import format_count
from bridge.jobs.group_facts import format_letter_count, format_span

#: The actions, as an imperative and as a participle.
VERBS: Final = {
    PlanKind.REPLAY: ("Replay", "replayed"),
    PlanKind.DISCARD: ("Discard", "discarded"),
    PlanKind.ARCHIVE: ("Archive", "archived"),
    PlanKind.COPY: ("Copy", "copied"),
    PlanKind.REDRIVE: ("Send again", "sent again"),
}


class PlanBadge(NamedTuple):
    """A state in words, with its shape and colour."""

    look: str
    icon: str
    words: str


def count_things(plan: BulkPlan, count: int) -> str:
    """Return a count in words: of letters, or of deliveries for a redrive."""
    return format_letter_count(count) if plan.what is not PlanKind.REDRIVE else format_count(count, "delivery")


def describe_action(plan: BulkPlan, what: str) -> str:
    """Return the action as a button says it: `Replay 2 letters`, `Copy 2 letters to sandbox`.

    Parameters:
        what: the count in words.
    """
    if plan.what is PlanKind.REDRIVE:
        return f"Send {what} again"
    if plan.what is PlanKind.COPY:
        return f"Copy {what} to {describe_target(plan)}"
    return f"{VERBS[plan.what][0]} {what}"


def describe_target(plan: BulkPlan) -> str:
    """Return the topic of a copy, with its Kafka cluster if that is another."""
    said = plan.options.target
    there = "another Kafka" if said.get("file") else said.get("addresses", "")
    return f"{said.get('topic', '')}{f' of {there}' if there else ''}"


def build_title(plan: BulkPlan) -> str:
    """Return the title of a plan: `replay 21,480 letters`."""
    words = describe_action(plan, count_things(plan, plan.counts.letters or sum(plan.outcomes.values())))
    return words[0].lower() + words[1:] + (", each with another value" if plan.counts.edits else "")


def describe_state(plan: BulkPlan) -> PlanBadge:
    """Return the state of a plan."""
    if plan.state is PlanState.APPLYING:
        if not plan.count(PlanItemState.WAITING) and (way := _describe_in_flight(plan)):
            return PlanBadge("run", "run", f"all sent{way}")
        words = f"wave {plan.wave + 1}" if plan.options.canary else "applying"
        return PlanBadge("run", "run", words)
    if plan.state is PlanState.STOPPED:
        ended = _describe_stop(plan)
        return ended._replace(words=ended.words + _describe_in_flight(plan))
    if plan.state is PlanState.DONE:
        way = _describe_in_flight(plan)
        return PlanBadge("run", "run", f"all sent{way}") if way else PlanBadge(_judge_end(plan), "ok", "applied")
    return {
        PlanState.MAKING: PlanBadge("off", "clock", "being made"),
        PlanState.PLANNED: PlanBadge("warn", "clock", "not applied"),
        PlanState.AWAITING: PlanBadge("warn", "clock", "awaits a second person"),
        PlanState.FAILED: PlanBadge("bad", "x", f"failed{_describe_in_flight(plan)}"),
    }[plan.state]


def _describe_stop(plan: BulkPlan) -> PlanBadge:
    if plan.began_at is None and set(plan.outcomes) <= {PlanItemState.WAITING}:
        return PlanBadge("off", "box", "rejected" if plan.stopped.startswith("rejected") else "thrown away")
    if plan.stopped.startswith("canary"):
        return PlanBadge("bad", "halt", "stopped by its canary")
    return PlanBadge("bad", "halt", "stopped, it came back" if plan.stopped.startswith("regression") else "stopped")


def _describe_in_flight(plan: BulkPlan) -> str:
    """Return the deliveries that are in flight for a plan that sends no more."""
    way = plan.count(*UNDER_WAY)
    return f", {way:,} in flight" if way else ""


def _judge_end(plan: BulkPlan) -> str:
    if plan.what not in (PlanKind.REPLAY, PlanKind.REDRIVE):
        return "off"
    return "good" if plan.is_good else "warn"


def explain_wait(found: PlanProgress) -> str:
    """Return why an applied plan does not run yet; "" if it runs."""
    plan = found.plan
    if found.alone_for is not None:
        return (
            "No recorder has taken it up: bridge deadletters record does what is applied here. Start it, or see why it "
            "does not answer."
        )
    if plan.state is PlanState.APPLYING and plan.what is PlanKind.DISCARD and plan.began_at is None:
        return "It begins 10 s after it was applied. Until then everything is as it was."
    return ""


#: The least outcomes, and ms, from which a pace is computed.
_PACE_FROM: Final = 5
_PACE_AFTER: Final = 5_000


def explain_pace(found: PlanProgress, queued: Mapping[str, int]) -> list[str]:
    """Return what an applied plan waits for: what is in flight, the queues before it, its pace and expected end.

    Parameters:
        queued: the messages in the queues of its handlers, as far as they are known.
    """
    plan = found.plan
    if plan.state is not PlanState.APPLYING or plan.began_at is None or found.alone_for is not None:
        return []
    sums = sum_outcomes(plan)
    said = []
    if sums.under_way and not sums.untouched:
        one = sums.under_way == 1
        last = count_things(plan, sums.under_way).removeprefix("1 ") if one else count_things(plan, sums.under_way)
        said.append(f"All are sent, and the last {last} {'is' if one else 'are'} in flight.")
    if sums.under_way:
        waiting = [f"{format_count(count, 'message')} in {name}" for name, count in sorted(queued.items()) if count]
        said += [f"Workers take what is queued in its turn: {', '.join(waiting)}."] if waiting else []
    ended, passed = sums.done + sums.dead + sums.unknown + sums.left_out, found.at - plan.began_at
    # A plan that was resumed has stood still for a time that nobody noted.
    resumed = sum(act.what == "apply" for act in found.trail) > 1
    if ended < _PACE_FROM or passed < _PACE_AFTER or resumed:
        return said
    pace = ended / passed * 1_000
    end = f" At that pace it ends in {format_span((sums.untouched + sums.under_way) / pace)}."
    if not sums.untouched:
        # The last ones may wait for their retries.
        end = ""
    elif plan.options.canary:
        end = " Each wave is larger than the one before, so its end is not known yet."
    rate = f"{pace:.3g} a second" if pace >= 1 else f"{60 * pace:.3g} a minute"
    return [*said, f"So far {rate} have ended.{end}"]


class PlanSums(NamedTuple):
    """The progress of a plan in the six counts of its page."""

    done: int
    dead: int
    under_way: int
    untouched: int
    left_out: int
    unknown: int


def sum_outcomes(plan: BulkPlan) -> PlanSums:
    """Return the counts of a plan that is or was applied."""
    good = (PlanItemState.DONE, PlanItemState.DISCARDED) if plan.what is PlanKind.DISCARD else (PlanItemState.DONE,)
    out = (PlanItemState.SKIPPED, PlanItemState.REFUSED)
    return PlanSums(
        plan.count(*good),
        plan.count(PlanItemState.DEAD),
        plan.count(*UNDER_WAY),
        plan.count(PlanItemState.WAITING),
        plan.count(*out) if plan.what is PlanKind.DISCARD else plan.count(*out, PlanItemState.DISCARDED),
        plan.count(PlanItemState.UNKNOWN),
    )


def describe_progress(plan: BulkPlan) -> str:
    """Return the progress in a line: `85 done, 3 dead again, 19 in flight`."""
    said = ("done", "dead again", "in flight", "not touched", "left out", "outcome unknown")
    return ", ".join(f"{count:,} {words}" for count, words in zip(sum_outcomes(plan), said, strict=True) if count)


def build_plan_bar(plan: BulkPlan) -> list[charts.BarShare]:
    """Return the progress as a bar."""
    found = sum_outcomes(plan)
    good = "good" if plan.what in (PlanKind.REPLAY, PlanKind.REDRIVE) else "plain"
    return charts.build_shares(
        {
            good: found.done,
            "bad": found.dead,
            "run": found.under_way,
            "warn": found.unknown,
            "rest": found.untouched + found.left_out,
        }
    )


def build_wave_bar(wave: WaveProgress) -> list[charts.BarShare]:
    """Return the progress of a wave as a bar."""
    ended = (PlanItemState.DEAD, PlanItemState.UNKNOWN)
    way, good, bad = wave.count(*UNDER_WAY), wave.count(PlanItemState.DONE), wave.count(*ended)
    return charts.build_shares({"good": good, "bad": bad, "run": way, "rest": wave.letters - way - good - bad})


def describe_wave(wave: WaveProgress) -> PlanBadge:
    """Return the result of a wave, or the limit at which it stops the plan."""
    dead, unknown = wave.count(PlanItemState.DEAD), wave.count(PlanItemState.UNKNOWN)
    done = wave.count(PlanItemState.DONE)
    pending, way = wave.count(PlanItemState.WAITING, *UNDER_WAY), wave.count(*UNDER_WAY)
    if wave.is_now:
        stops = "" if wave.is_last else f"; stops the plan at {wave.stops_at:,} dead"
        return PlanBadge("run", "run", f"runs{stops}")
    if pending == wave.letters and not way:
        return PlanBadge("off", "clock", "not begun")
    if not wave.is_last and dead + unknown >= wave.stops_at:
        ends = f"{dead:,} dead again" + (f", {unknown:,} unknown" if unknown else "")
        return PlanBadge("bad", "halt", f"stopped the plan: {ends}; {wave.stops_at - 1:,} may be")
    if pending:
        if way:
            return PlanBadge("run", "run", f"sent, {way:,} in flight")
        return PlanBadge("off", "clock", f"{pending:,} not sent")
    return PlanBadge("good", "ok", f"passed, {done:,} of {wave.letters:,}" if dead + unknown else "passed")


def describe_success_rate(plan: BulkPlan) -> str:
    """Return `98.0 % of what is known`, if anything is known."""
    found = sum_outcomes(plan)
    ended = found.done + found.dead + found.unknown
    return f"{found.done / ended:.1%} of what is known".replace("%", " %") if ended else ""


def describe_request(asked: Mapping[str, Any]) -> str:
    """Return the selection: `handler orders.handlers.charge, reason poison`; "" for all open letters."""
    if "topic" not in asked:
        return letter_filter.describe_filter(_get_filter(asked))
    # A range of a source topic; `RedriveRequest.to_data`.
    limits = [
        *(f"partition {each}" for each in asked.get("partitions", ())),
        *(f"handler {each}" for each in asked.get("handlers", ())),
        *(["one key"] if "key" in asked else []),
    ]
    return ", ".join([f"topic {asked['topic']} from {asked.get('from')} to {asked.get('to')}", *limits])


def build_letters_address(asked: Mapping[str, Any]) -> str | None:
    """Return the address of the selected letters; `None` for single ids and for a redrive."""
    if "topic" in asked or _get_filter(asked).get("ids"):
        return None
    return f"/letters?{urlencode([*letter_filter.list_filter_pairs(_get_filter(asked))])}"


def _get_filter(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the filter in a request; a patch has it inside."""
    found: Mapping[str, Any] = asked.get("filter", asked)
    return found


def build_question(plan: BulkPlan, matched: int, will: int) -> str:
    """Return the question of a preview."""
    if not will:
        if plan.what is PlanKind.REDRIVE:
            return "Nothing to send again: no delivery of this range needs it"
        verb, done = VERBS[plan.what]
        return f"Nothing to {verb.lower()}: of {format_letter_count(matched)} that matched, none can be {done}"
    count = count_things(plan, matched)
    some = count if will == matched else f"{will:,} of {'' if plan.what is PlanKind.REDRIVE else 'the '}{count}"
    that = "" if will == matched or plan.what is PlanKind.REDRIVE else " that matched"
    return f"{describe_action(plan, some + that)}{', each with another value' if plan.counts.edits else ''}?"


class UnpatchedLetters(NamedTuple):
    """Letters that a patch leaves unchanged.

    Attributes:
        words: the kind of reason; `why`: the error of the patch or the handler.
        examples: letters.
    """

    words: str
    why: str
    letters: int
    examples: Sequence[int]


#: The reasons to leave a letter unpatched.
_UNPATCHED: Final = {
    "unchanged": "The patch changes nothing of them",
    "no_json": "They cannot be patched",
    "not_applied": "The patch does not apply",
    "not_valid": "Their handlers would not take them after it",
}


def list_unpatched(plan: BulkPlan) -> list[UnpatchedLetters]:
    """Return the reasons why letters are left out by a patch, those of a kind together."""
    found, edits = [], plan.counts.edits
    for name, words in _UNPATCHED.items():
        reasons = edits.get(f"{name}_reasons") or [{"why": "", "count": edits.get(name, 0), "letters": ()}]
        found += [
            UnpatchedLetters(words, each["why"], each["count"], each["letters"]) for each in reasons if each["count"]
        ]
    return found


#: The fates of deliveries in a range (bridge.deadletters.replay.redrive_range), and what a redrive does with them.
_DELIVERY_STATES: Final = {
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


class DeliveryCount(NamedTuple):
    """Deliveries of a range with the same fate."""

    handler: str
    words: str
    deliveries: int
    is_sent: bool


def list_delivery_counts(plan: BulkPlan) -> list[DeliveryCount]:
    """Return the fates of the deliveries of a range when the plan was made."""
    wanted = find_sent_stands(again=plan.options.again)
    return [
        DeliveryCount(handler, words, of[name], name in wanted)
        for handler, of in plan.counts.stands.items()
        for name, words in _DELIVERY_STATES.items()
        if of.get(name)
    ]
