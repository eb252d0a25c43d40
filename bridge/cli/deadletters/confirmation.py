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
    """Refuse to begin what must be asked for where nobody can be asked."""
    if not yes and not has_terminal():
        fail("nobody can be asked here, there is no terminal: look first what it is about, then say --yes.", NOT_FOUND)


def has_terminal() -> bool:
    """Whether somebody sees a question, and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_plan(yes: bool, what: PlanKind, counts: PlanCounts) -> bool:
    """Say what a plan is about, also to who reads a script's log; and ask whether to do it, unless that is said."""
    print_counts(error_console, counts)
    if yes:
        return True
    return typer.confirm(f"{what} {format_letter_count(counts.letters)}?", err=True)


def print_counts(console: Console, counts: PlanCounts) -> None:
    """How many letters a plan has, of which handlers and reasons, and what is to be known of them."""
    for handler, reasons in counts.handlers.items():
        print_line(console, f"  {handler or 'letters of other programs'}: {_join_counts(reasons)}")
    for count, words in (
        (counts.done, "are done by now, as the ledger has it: they are skipped"),
        (counts.replaying, "were asked for too, and are on their way already"),
        (counts.too_large, "are larger than the topic takes to which they would go"),
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
        print_line(console, f"  {count:,} are of {handler}, which nobody knows: they are skipped", "yellow")
    # Where all have died equally often, or it is a replay, that is one of its warnings.
    again = {times: count for times, count in counts.replayed.items() if str(times) != "0"}
    if again and (len(again) > 1 or not counts.warnings):
        said = ", ".join(f"{count:,} {_count_times(int(times))}" for times, count in again.items())
        print_line(console, f"  died again after a replay: {said}", "yellow")
    for warning in counts.warnings:
        print_line(console, f"  {warning}", "yellow")


def print_edits(console: Console, edits: Mapping[str, Any]) -> None:
    """How many go back with another value, and why others do not."""
    print_line(console, f"  {edits['changed']:,} go back with another value")
    for name, words in (
        ("unchanged", "stay here: the patch changes nothing of them"),
        ("no_json", "stay here: they cannot be patched"),
        ("not_applied", "stay here: the patch does not apply"),
        ("not_valid", "stay here: their handlers would not take them after it"),
    ):
        if edits.get(name):
            print_line(console, f"  {edits[name]:,} {words}", "yellow")
            print_reasons(console, edits.get(f"{name}_reasons", ()))


def print_reasons(console: Console, reasons: Iterable[Mapping[str, Any]]) -> None:
    """Reasons with how many have each, and some letters that do."""
    for each in reasons:
        some = ", ".join(map(str, each["letters"]))
        print_line(console, f"    {each['count']:,}: {each['why']} (letters {some})")


def _join_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _count_times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
