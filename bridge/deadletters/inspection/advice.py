"""The next step for a failure group or a letter, and why: one suggestion (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.model.letter_view import LetterView
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.formats.text_forms import format_share, inflect_verb
from bridge.jobs.group_facts import format_utc


class NextStep(StrEnum):
    """The next step for a group or a letter."""

    WATCH = "watch"
    WAIT = "wait"
    REPLAY = "replay"
    DISCARD = "discard"
    EDIT = "edit"
    LOOK = "look"
    NOTHING = "nothing"


class Suggestion(NamedTuple):
    """A suggested next step.

    Attributes:
        why: the reason, in a sentence or two.
    """

    do: NextStep
    why: str


#: What is said of a letter, and of a group, if nothing else fits.
LOOK_AT_LETTER: Final = Suggestion(NextStep.LOOK, "The failure is below. Fix the cause, then replay.")
LOOK_AT_GROUP: Final = Suggestion(NextStep.LOOK, "See the failure below. Fix the cause, then replay.")


@dataclass(frozen=True, slots=True)
class GroupSurroundings:
    """The facts about a group that the group itself does not have.

    Attributes:
        plan: a plan that has letters of it in flight.
        running: living workers by version of its handler; empty: unknown.
        down: a dependency of its handler whose circuit breaker is open; "": none.
        died_again: whether letters of it were replayed already, and are open again.
    """

    plan: int | None = None
    running: Mapping[str, int] = field(default_factory=dict)
    down: str = ""
    died_again: bool = False


def advise_on_letter(letter: LetterView) -> Suggestion:
    """Return the suggested next step for a letter."""
    it = letter.listed
    if letter.is_unknown:
        return Suggestion(
            NextStep.LOOK,
            f"Plan {it.plan} has sent it back, and whether it ran is unknown. Find that out where its handler "
            f'writes. If it ran: bridge deadletters resolve {it.id} --why "…". '
            f'If it did not run: bridge deadletters reopen {it.id} --why "…".',
        )
    if it.status is LetterStatus.REPLAYING:
        return Suggestion(
            NextStep.WATCH, f"Plan {it.plan} has sent it back; its outcome is known within seconds of its end."
        )
    if it.status is not LetterStatus.OPEN:
        return Suggestion(NextStep.NOTHING, f"It is {it.status}.")
    if it.reason == "undecodable":
        return Suggestion(
            NextStep.EDIT, "Its value could not be read, so its handler never ran. Unchanged it fails again."
        )
    if it.failures > 1:
        times = f"It has died {it.failures:,} times"
        on = f", the last time on {it.version}" if it.version else ""
        return Suggestion(NextStep.EDIT, f"{times}{on}: a replay alone does not fix it.")
    return LOOK_AT_LETTER


def advise_on_group(group: GroupState, around: GroupSurroundings) -> Suggestion:
    """Return the suggestion of the first rule that applies to a group."""
    return next(found for rule in _RULES if (found := rule(group, around)) is not None)


def _under_way(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    if around.plan is None:
        return None
    count = group.statuses.get("replaying", 0)
    return Suggestion(
        NextStep.WATCH,
        f"Plan {around.plan} replays it: {count:,} of its letters {inflect_verb(count, 'are')} in flight.",
    )


def _nothing_open(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    return None if group.open else Suggestion(NextStep.NOTHING, "None of its letters is open.")


def _came_back(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    at = group.regressed_at
    if at is not None:
        return Suggestion(NextStep.LOOK, f"Regression: marked as fixed, it failed again at {format_utc(at / 1000)}.")
    back = next((fix for fix in group.cause_fixes if fix.regressed_at is not None), None)
    if back is None or back.regressed_at is None:
        return None
    at = back.regressed_at
    return Suggestion(
        NextStep.LOOK, f"Regression of cause {back.cause}: marked as fixed, it failed again at {format_utc(at / 1000)}."
    )


def _waits_for_a_version(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    fixed_in, has = group.fixed_in, around.running
    if fixed_in is None:
        return None
    on = (
        f"{format_share(has.get(fixed_in, 0), sum(has.values()), 'worker', 'report')} it"
        if has
        else "no worker is known"
    )
    return Suggestion(NextStep.WAIT, f"Its letters are replayed automatically once all workers have {fixed_in}; {on}.")


def _is_down(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    down = around.down
    return (
        Suggestion(NextStep.WAIT, f"{down} is down: its circuit breaker is open, so a replay would wait too.")
        if down
        else None
    )


def _grows(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    grows = group.growth
    if grows is None:
        return None
    since = format_utc(grows.since / 1000)
    return Suggestion(
        NextStep.LOOK, f"Failures grow: {grows.failures:,} since {since}; {grows.usual:g} an hour were usual."
    )


def _mended(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    """Suggest a replay if only versions run in which the group has never failed."""
    runs, failed = set(around.running), set(group.versions)
    if not runs or not failed or "" in runs or runs & failed:
        return None
    return Suggestion(NextStep.REPLAY, f"{', '.join(sorted(runs))} runs now, in which it has not failed.")


def _needs_an_edit(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    if group.reasons == ("undecodable",):
        return Suggestion(NextStep.EDIT, "Values that could not be read fail again unchanged.")
    if around.died_again:
        return Suggestion(
            NextStep.EDIT, "Letters of it have died again after a replay: a replay alone does not fix it."
        )
    return None


def _always_discarded(group: GroupState, around: GroupSurroundings) -> Suggestion | None:
    discarded = group.statuses.get("discarded", 0)
    if not discarded or group.statuses.get("resolved", 0):
        return None
    return Suggestion(NextStep.DISCARD, f"{discarded:,} were discarded before, and none was replayed with success.")


def _look(group: GroupState, around: GroupSurroundings) -> Suggestion:
    return LOOK_AT_GROUP


_RULES: Final = (
    _under_way,
    _nothing_open,
    _came_back,
    _waits_for_a_version,
    _is_down,
    _grows,
    _mended,
    _needs_an_edit,
    _always_discarded,
    _look,
)
