"""A plan confirmed by its counts and carried out in the foreground: its progress, the effect of Ctrl-C, its end."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bridge.cli.command_io import AGAIN, BAD, FAULTS, INTERRUPTED, OK, console, error_console, print_result
from bridge.deadletters.model.bulk_plan import UNDER_WAY, BulkPlan, PlanCounts, PlanItemState, PlanKind, PlanState
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.inspection.terminal_output import print_line
from bridge.jobs.group_facts import format_letter_count
from bridge.operator_actions.topic_halt import find_person

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService
    from bridge.deadletters.replay.plan_progress import LeftOutLetters

#: Seconds without a new outcome after which the command says that a recorder must run.
PATIENCE_SECONDS: Final = 20.0
#: The past participle of each kind of plan that runs no handler.
_END_WORDS: Final[Mapping[PlanKind, str]] = {PlanKind.ARCHIVE: "archived", PlanKind.COPY: "copied"}
#: The kinds of plans after which handlers run.
ACTIONS_THAT_RUN: Final = (PlanKind.REPLAY, PlanKind.REDRIVE)
#: The states of the items that the plan has reached.
_REACHED_STATES: Final = tuple(state for state in PlanItemState if state is not PlanItemState.WAITING)


@contextmanager
def report_interruption() -> Iterator[None]:
    """Report, on Ctrl-C while a plan is made, that nothing was done and where the unfinished plan is listed."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(
            error_console,
            "interrupted while it was planned: nothing was sent or changed. The unfinished plan is "
            "listed by bridge deadletters plans; apply it, or leave it.",
        )
        raise typer.Exit(INTERRUPTED) from None


def carry_out_plan(
    desk: "DeadLetterService", plan: BulkPlan, by: str, *, yes: bool, wait: bool, as_json: bool, plan_only: bool = False
) -> None:
    """Print a plan that is only made; else apply it if the user, or `--yes`, confirms its counts."""
    if plan_only:
        print_result(_describe_plan(plan), as_json, lambda: _print_planned(plan))
        return
    if not confirm_plan(yes, plan):
        print_line(error_console, f"nothing was sent or changed; to do it: bridge deadletters plans apply {plan.id}")
        raise typer.Exit(FAULTS)
    run_plan(desk, plan, by, wait, as_json)


def confirm_plan(yes: bool, plan: BulkPlan) -> bool:
    """Print the counts of a plan, in a script too, and return whether the user, or `--yes`, confirms it."""
    print_counts(error_console, plan.counts)
    return yes or typer.confirm(f"{plan.what} {format_letter_count(plan.counts.letters)}?", err=True)


def _print_planned(plan: BulkPlan) -> None:
    print_counts(console, plan.counts)
    print_plan(console, plan)


def _describe_plan(plan: BulkPlan) -> dict[str, Any]:
    return {"plan": plan.id, "state": str(plan.state), "counts": plan.counts.to_data()}


def run_plan(desk: "DeadLetterService", plan: BulkPlan, by: str, wait: bool, as_json: bool) -> None:
    """Apply a plan, wait for its outcomes if asked to, print its state, and exit with its code."""
    from bridge.deadletters.recorder.recorder_process import record_meanwhile

    # A plan that sends nothing to handlers causes no deaths, so no recorder is needed.
    records = plan.what in ACTIONS_THAT_RUN and (wait or plan.options.canary)
    try:
        with record_meanwhile(desk) if records else nullcontext(), _show_plan_progress(plan) as heard:
            plan = desk.plans.apply(plan.id, by, heard)
            if wait and not plan.is_over and plan.state is not PlanState.AWAITING:
                plan = desk.plans.wait(plan.id, heard)
    except KeyboardInterrupt:
        _stop_interrupted(desk, plan.id)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        _end_unavailable(desk, plan.id, str(error))
    left_out = desk.progress.left_out(plan)
    found = _describe_plan(plan)
    if wait:
        found["outcomes"] = dict(plan.outcomes)
    found["left_out"] = [each._asdict() for each in left_out]
    print_result(found, as_json, lambda: print_plan(console, plan, wait, left_out))
    raise typer.Exit(get_plan_exit_code(plan, wait))


def get_plan_exit_code(plan: BulkPlan, wait: bool) -> int:
    """Return exit code 3 if the plan was stopped or failed, or an awaited delivery did not succeed; 75 if it awaits a
    second person.
    """
    if plan.state is PlanState.AWAITING:
        return AGAIN
    return BAD if plan.state in (PlanState.STOPPED, PlanState.FAILED) or (wait and not plan.is_good) else OK


def print_plan(to: Console, plan: BulkPlan, wait: bool = True, left_out: Sequence["LeftOutLetters"] = ()) -> None:
    """Print the state of a plan, the letters that it left out, with reasons, and the next commands."""
    words = {str(PlanItemState.DONE): _END_WORDS[plan.what]} if plan.what in _END_WORDS else {}
    said = ", ".join(f"{count:,} {words.get(state, state)}" for state, count in plan.outcomes.items()) or (
        "nothing yet" if plan.counts.letters else "it has no letter: no open letter matches"
    )
    print_line(to, f"plan {plan.id} is {plan.state}: {said}")
    if plan.state is PlanState.AWAITING:
        print_line(
            to,
            f"  it awaits a second person, not {plan.planner or plan.by}; to approve it: bridge deadletters plans "
            f"apply {plan.id}; to reject it: bridge deadletters plans stop {plan.id}",
        )
    elif plan.approved_by:
        print_line(to, f"  approved by {plan.approved_by}")
    if plan.stopped:
        print_line(to, f"  it stopped: {plan.stopped}", "red")
    for each in left_out:
        print_line(to, f"  {each.letters:,} {each.state}: {each.why}")
    waiting = plan.count(PlanItemState.WAITING)
    if plan.state in (PlanState.STOPPED, PlanState.PLANNED, PlanState.FAILED):
        if waiting or plan.count(PlanItemState.CLAIMED):
            print_line(
                to,
                f"  {waiting:,} are untouched; to resume: bridge deadletters plans apply {plan.id}",
            )
        _print_claimed(to, plan)
    if plan.count(PlanItemState.DEAD):
        print_line(
            to,
            "  letters that died again are open, with their new failure: bridge deadletters list --status open",
            "red",
        )
    if not wait and plan.count(PlanItemState.SENT, PlanItemState.CLAIMED):
        print_line(to, f"  outcomes: bridge deadletters plans show {plan.id}")


def _print_claimed(to: Console, plan: BulkPlan) -> None:
    """Print how many letters were claimed and perhaps sent when the plan was left."""
    if claimed := plan.count(PlanItemState.CLAIMED):
        print_line(
            to, f"  {claimed:,} may have been sent: `bridge deadletters record` checks them in Kafka and resumes"
        )


@contextmanager
def _show_plan_progress(plan: BulkPlan) -> Iterator[Callable[[BulkPlan], None]]:
    """Show a progress bar on a terminal; elsewhere only a hint when the wait is long."""
    columns = (
        TextColumn("plan {task.fields[plan]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[how]}"),
    )
    patience = _Patience()
    with Progress(
        *columns, TimeRemainingColumn(), console=error_console, disable=not error_console.is_terminal
    ) as progress:
        task = progress.add_task("", total=plan.counts.letters, plan=plan.id, how="")

        def heard(now: BulkPlan) -> None:
            ended = now.count(*_REACHED_STATES) - now.count(*UNDER_WAY)
            progress.update(task, completed=now.count(*_REACHED_STATES), how=f"{ended:,} ended")
            if patience.is_over(now, ended):
                print_line(error_console, "outcomes need `bridge deadletters record`: it must run")

        yield heard


class _Patience:
    """The check, true once, that no delivery in flight has ended for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._ended, self._since, self._said = clock, -1, clock(), False

    def is_over(self, plan: BulkPlan, ended: int) -> bool:
        """Return whether to print the hint now."""
        if ended != self._ended or not plan.count(*UNDER_WAY):
            self._ended, self._since = ended, self._clock()
        if self._said or self._clock() - self._since < PATIENCE_SECONDS:
            return False
        self._said = True
        return True


def _end_unavailable(desk: "DeadLetterService", plan_id: int, why: str) -> NoReturn:
    """End the command if a server does not answer; the plan stays and can be resumed."""
    print_line(error_console, why, "red")
    plan = desk.plans.one(plan_id)
    if plan.state is PlanState.APPLYING:
        print_line(error_console, f"plan {plan_id} is resumed by `bridge deadletters record`")
        print_line(error_console, f"to resume it by hand: bridge deadletters plans apply {plan_id}")
        print_line(error_console, f"to stop it: bridge deadletters plans stop {plan_id}")
    elif plan.state is PlanState.PLANNED:
        print_line(error_console, f"nothing was begun; to try again: bridge deadletters plans apply {plan_id}")
    else:
        print_line(error_console, f"its state: bridge deadletters plans show {plan_id}")
    raise typer.Exit(AGAIN)


def _stop_interrupted(desk: "DeadLetterService", plan_id: int) -> NoReturn:
    """Stop a plan that the user interrupted: no other process may resume it by itself."""
    plan = desk.plans.one(plan_id)
    if plan.state in (PlanState.PLANNED, PlanState.APPLYING):
        plan = desk.plans.stop(plan_id, find_person(), "interrupted (Ctrl-C)")
    sent = plan.count(*_REACHED_STATES) - plan.count(
        PlanItemState.SKIPPED, PlanItemState.REFUSED, PlanItemState.CLAIMED
    )
    waiting = plan.count(PlanItemState.WAITING)
    print_line(
        error_console,
        f"interrupted: {sent:,} of {plan.counts.letters:,} were sent and will run; {waiting:,} were not sent.",
    )
    _print_claimed(error_console, plan)
    if plan.count(PlanItemState.WAITING, PlanItemState.CLAIMED):
        print_line(error_console, f"to resume: bridge deadletters plans apply {plan.id}")
    print_line(error_console, f"outcomes: bridge deadletters plans show {plan.id}")
    raise typer.Exit(INTERRUPTED)


def print_counts(console: Console, counts: PlanCounts) -> None:
    """Print how many letters a plan has, by handler and reason, and the warnings about them."""
    for handler, reasons in counts.handlers.items():
        print_line(console, f"  {handler or 'letters of other programs'}: {_join_counts(reasons)}")
    for count, words in (
        (counts.done, "are done by now, says the ledger: they are skipped"),
        (counts.replaying, "match too, and are replaying already: they are skipped"),
        (counts.too_large, "are larger than their target topic takes"),
        (counts.too_old, "were too large for the database, and Kafka has dropped them"),
        (counts.foreign, "are of other programs: they go to their source topic, where all of its groups read them"),
    ):
        if count:
            print_line(console, f"  {count:,} {words}", "yellow")
    if counts.edits:
        print_edits(console, counts.edits)
    for handler, stands in counts.stands.items():
        print_line(console, f"  {handler}: {_join_counts(stands)}")
    for handler, count in counts.unknown_handlers.items():
        print_line(
            console,
            f"  {count:,} are of {handler}, an unknown handler: they are skipped",
            "yellow",
        )
    # If all have died equally often, or the plan is a replay, a warning says so.
    again = {times: count for times, count in counts.replayed.items() if str(times) != "0"}
    if again and (len(again) > 1 or not counts.warnings):
        said = ", ".join(f"{count:,} {_count_times(int(times))}" for times, count in again.items())
        print_line(console, f"  died again after a replay: {said}", "yellow")
    for warning in counts.warnings:
        print_line(console, f"  {warning}", "yellow")


def print_edits(console: Console, edits: Mapping[str, Any]) -> None:
    """Print how many letters are to be replayed with a new value, and why the others stay."""
    print_line(console, f"  to be replayed with the new value: {edits['changed']:,}")
    for name, words in (
        ("unchanged", "stay here: the patch changes nothing of them"),
        ("no_json", "stay here: their values are no JSON that can be patched"),
        ("not_applied", "stay here: the patch does not apply"),
        ("not_valid", "stay here: their handlers would refuse the patched value"),
    ):
        if edits.get(name):
            print_line(console, f"  {edits[name]:,} {words}", "yellow")
            print_reasons(console, edits.get(f"{name}_reasons", ()))


def print_reasons(console: Console, reasons: Iterable[Mapping[str, Any]]) -> None:
    """Print each reason with its count and the ids of some letters."""
    for reason in reasons:
        some = ", ".join(map(str, reason["letters"]))
        print_line(console, f"    {reason['count']:,}: {reason['why']} (letters {some})")


def _join_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _count_times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
