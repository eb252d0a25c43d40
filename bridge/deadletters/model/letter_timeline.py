"""The timeline of a letter: its events in order (pure)."""

from collections.abc import Iterator
from typing import NamedTuple

from bridge.deadletters.model.letter_view import LetterAct, LetterView
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.formats.text_forms import format_count


class TimelineEvent(NamedTuple):
    """An event of a letter's timeline.

    Attributes:
        at: ms since the epoch.
        bad: whether it is a failure.
        plan: the plan that did it.
    """

    at: int
    said: str
    bad: bool = False
    plan: int | None = None


def build_timeline(letter: LetterView) -> list[TimelineEvent]:
    """Return the events from the record's production until now; of one millisecond, in the order of their causes."""
    # A regression is in the audit log twice: by its plan and by its group.
    return sorted(dict.fromkeys(_list_events(letter)), key=lambda event: event.at)


def _list_events(letter: LetterView) -> Iterator[TimelineEvent]:
    now = letter.listed
    if letter.timestamp is not None:
        yield TimelineEvent(letter.timestamp, "the record was produced")
    if letter.first_failed_at < min([now.failed_at, *(each.failed_at for each in letter.history)]):
        yield TimelineEvent(letter.first_failed_at, "failed for the first time", True)
    for each in letter.history:
        yield TimelineEvent(each.failed_at, _describe_death(each.reason, each.error_class, each.runs), True)
    yield TimelineEvent(now.failed_at, _describe_death(now.reason, now.error_class, now.runs), True)
    # The audit log also has the making of a plan, but not its state for this letter.
    made = {(act.plan, act.what) for act in letter.plans}
    trail = [act for act in letter.trail if act.plan is None or (act.plan, act.what) not in made]
    for act in (*letter.plans, *letter.edits, *trail):
        if act.at is not None:
            # The time of the plan's state for this letter, not of the making of the plan.
            yield TimelineEvent(act.at if act.state_at is None else act.state_at, _describe_act(act), plan=act.plan)
    if now.status in (LetterStatus.RESOLVED, LetterStatus.REPLAYING):
        yield TimelineEvent(letter.status_at, str(now.status))


def _describe_death(reason: str, error_class: str, runs: int) -> str:
    attempts = f", after {format_count(runs, 'attempt')}" if runs else ""
    return f"died: {reason or error_class or 'nobody says why'}{attempts}"


def _describe_act(act: LetterAct) -> str:
    named = f"plan {act.plan}"
    plan = f", {named}" if act.plan is not None and named not in act.said else ""
    state = f": {act.state}" if act.state else ""
    said = f": {act.said}" if act.said else ""
    return f"{act.what} by {act.by}{plan}{state}{said}"
