"""A plan carried out before a person's eyes: how far it is, what Ctrl-C leaves, and how it ended."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bridge.cli.answers import AGAIN, BAD, INTERRUPTED, OK, console, print_found
from bridge.cli.deadletters.progress import errors
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.plan.plan import UNDER_WAY, ItemState, Plan, State, What
from bridge.errors import KafkaUnavailable, LedgerUnavailable

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk
    from bridge.deadletters.questions.progress import LeftOut

#: Seconds without an end of anything on its way, after which it is said what the outcomes need.
LONG: Final = 20.0
#: What has been done where no handler runs.
_DONE: Final = {What.ARCHIVE: "archived", What.COPY: "copied"}
#: After which handlers run.
RUNS: Final = (What.REPLAY, What.REDRIVE)
#: How many were come to, of those that a plan has.
_COME_TO: Final = tuple(state for state in ItemState if state is not ItemState.WAITING)


@contextmanager
def being_planned() -> Iterator[None]:
    """Around the making of a plan: Ctrl-C says that nothing was done, and where to find what stands of it."""
    try:
        yield
    except KeyboardInterrupt:
        say(
            errors,
            "interrupted while it was planned: nothing was sent or changed, nor will it be. What stands of the plan is "
            "listed by bridge deadletters plans; apply it, or leave it.",
        )
        raise typer.Exit(INTERRUPTED) from None


def carry_out(desk: "Desk", plan: Plan, by: str, wait: bool, as_json: bool) -> None:
    """Apply a plan, wait for its outcomes if asked to, say how it stands, and end the command with its code."""
    from bridge.deadletters.recorder.meanwhile import recorded_meanwhile

    # What sends nothing to handlers has no deaths that would have to be recorded.
    records = plan.what in RUNS and (wait or plan.options.canary)
    try:
        with recorded_meanwhile(desk) if records else nullcontext(), _shown(plan) as heard:
            plan = desk.plans.apply(plan.id, by, heard)
            if wait and not plan.is_over:
                plan = desk.plans.wait(plan.id, heard)
    except KeyboardInterrupt:
        _interrupted(desk, plan.id)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _left_by_others(desk, plan.id, str(error))
    left_out = desk.progress.left_out(plan)
    found = {"plan": plan.id, "state": str(plan.state), "counts": plan.counts.to_data()}
    if wait:
        found["outcomes"] = dict(plan.outcomes)
    found["left_out"] = [each._asdict() for each in left_out]
    print_found(found, as_json, lambda: print_plan(console, plan, wait, left_out))
    raise typer.Exit(code(plan, wait))


def code(plan: Plan, wait: bool) -> int:
    """3 where it was stopped, or of what was waited for something ended badly."""
    return BAD if plan.state in (State.STOPPED, State.FAILED) or (wait and not plan.is_good) else OK


def print_plan(to: Console, plan: Plan, wait: bool = True, left_out: Sequence["LeftOut"] = ()) -> None:
    """How a plan stands, what it has left out and why, and what can be done with it."""
    said = ", ".join(f"{count:,} {_ended(plan, state)}" for state, count in plan.outcomes.items()) or (
        "nothing yet" if plan.counts.letters else "it has no letter: none that fits is open"
    )
    say(to, f"plan {plan.id} is {plan.state}: {said}")
    if plan.stopped:
        say(to, f"  it stopped: {plan.stopped}", "red")
    for each in left_out:
        say(to, f"  {each.letters:,} {each.state}: {each.why}")
    if plan.state in (State.STOPPED, State.PLANNED, State.FAILED):
        if plan.count(ItemState.WAITING, ItemState.CLAIMED):
            say(to, f"  {_left(plan):,} are untouched; go on: bridge deadletters plans apply {plan.id}")
        _say_claimed(to, plan)
    if plan.count(ItemState.DEAD):
        say(to, "  what died again is open again, with its new failure: bridge deadletters list --status open", "red")
    if not wait and plan.count(ItemState.SENT, ItemState.CLAIMED):
        say(to, f"  how they end: bridge deadletters plans show {plan.id}")


def _ended(plan: Plan, state: str) -> str:
    """How it is said that deliveries of a plan have ended."""
    return _DONE.get(plan.what, state) if state == ItemState.DONE else state


def _left(plan: Plan) -> int:
    return plan.count(ItemState.WAITING)


def _say_claimed(to: Console, plan: Plan) -> None:
    """Of what was on its way as the plan was left, nobody has looked yet whether Kafka has it."""
    if claimed := plan.count(ItemState.CLAIMED):
        say(to, f"  of {claimed:,} it is not known: `bridge deadletters record` looks, and brings them to an end")


@contextmanager
def _shown(plan: Plan) -> Iterator[Callable[[Plan], None]]:
    """A bar on a terminal; nothing elsewhere, but what is to be known of a long wait."""
    columns = (
        TextColumn("plan {task.fields[plan]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[how]}"),
    )
    patience = _Patience()
    with Progress(*columns, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=plan.counts.letters, plan=plan.id, how="")

        def heard(now: Plan) -> None:
            ended = now.count(*_COME_TO) - now.count(*UNDER_WAY)
            progress.update(task, completed=now.count(*_COME_TO), how=f"{ended:,} ended")
            if patience.is_over(now, ended):
                say(errors, "what dies again is told by `bridge deadletters record`: it must run")

        yield heard


class _Patience:
    """Whether for long nothing has ended of what is on its way; said once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._ended, self._since, self._said = clock, -1, clock(), False

    def is_over(self, plan: Plan, ended: int) -> bool:
        """Whether it is to be said now."""
        if ended != self._ended or not plan.count(*UNDER_WAY):
            self._ended, self._since = ended, self._clock()
        if self._said or self._clock() - self._since < LONG:
            return False
        self._said = True
        return True


def _left_by_others(desk: "Desk", plan_id: int, why: str) -> NoReturn:
    """What does not answer may answer again: the plan stays to be done."""
    say(errors, why, "red")
    plan = desk.plans.one(plan_id)
    if plan.state is State.APPLYING:
        say(errors, f"plan {plan_id} goes on where `bridge deadletters record` runs")
        say(errors, f"to go on by hand: bridge deadletters plans apply {plan_id}")
        say(errors, f"to give it up: bridge deadletters plans stop {plan_id}")
    elif plan.state is State.PLANNED:
        say(errors, f"nothing was begun; to try again: bridge deadletters plans apply {plan_id}")
    else:
        say(errors, f"how it stands: bridge deadletters plans show {plan_id}")
    raise typer.Exit(AGAIN)


def _interrupted(desk: "Desk", plan_id: int) -> NoReturn:
    """Stop the plan: nobody else is to go on by themselves with what a person has interrupted."""
    plan = desk.plans.one(plan_id)
    if plan.state in (State.PLANNED, State.APPLYING):
        plan = desk.plans.stop(plan_id, who(), "interrupted (Ctrl-C)")
    sent = plan.count(*_COME_TO) - plan.count(ItemState.SKIPPED, ItemState.REFUSED, ItemState.CLAIMED)
    say(
        errors,
        f"interrupted: {sent:,} of {plan.counts.letters:,} were sent, and go their way; {_left(plan):,} were not.",
    )
    _say_claimed(errors, plan)
    if plan.count(ItemState.WAITING, ItemState.CLAIMED):
        say(errors, f"go on: bridge deadletters plans apply {plan.id}")
    say(errors, f"how they end: bridge deadletters plans show {plan.id}")
    raise typer.Exit(INTERRUPTED)
