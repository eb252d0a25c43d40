"""The confirmation of a bulk action: its counts, and a question to the user, or `--yes` in a script."""

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from bridge.cli.command_io import NOT_FOUND, error_console, fail
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanKind
from bridge.inspection.terminal_output import print_line
from bridge.jobs.group_facts import format_letter_count

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking: for scripts.")]


def require_terminal(yes: bool) -> None:
    """Refuse to begin an action that asks for a confirmation if no terminal can show the question."""
    if not yes and not has_terminal():
        fail("there is no terminal to confirm on: check what it would do first, then pass --yes.", NOT_FOUND)


def has_terminal() -> bool:
    """Return whether a terminal shows the question and takes the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_plan(yes: bool, what: PlanKind, counts: PlanCounts) -> bool:
    """Print the counts of a plan, in a script too, and return whether the user, or `--yes`, confirms it."""
    print_counts(error_console, counts)
    if yes:
        return True
    return typer.confirm(f"{what} {format_letter_count(counts.letters)}?", err=True)


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
    """Print how many letters go back with another value, and why the others stay."""
    print_line(console, f"  {edits['changed']:,} go back with another value")
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
    for each in reasons:
        some = ", ".join(map(str, each["letters"]))
        print_line(console, f"    {each['count']:,}: {each['why']} (letters {some})")


def _join_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _count_times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
