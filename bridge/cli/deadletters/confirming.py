"""What many letters are about is asked for first, with its counts: of a person, or by `--yes` in a script."""

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from bridge.cli.answers import NOT_FOUND, fail
from bridge.cli.deadletters.progress import errors
from bridge.commands.printing import say
from bridge.deadletters.plan.plan import Counts, What
from bridge.upkeep.facts import letters

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking: for scripts.")]


def need_somebody(yes: bool) -> None:
    """Refuse to begin what must be asked for where nobody can be asked."""
    if not yes and not can_be_asked():
        fail("nobody can be asked here, there is no terminal: look first what it is about, then say --yes.", NOT_FOUND)


def can_be_asked() -> bool:
    """Whether somebody sees a question, and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(yes: bool, what: What, counts: Counts) -> bool:
    """Say what a plan is about, also to who reads a script's log; and ask whether to do it, unless that is said."""
    print_counts(errors, counts)
    if yes:
        return True
    return typer.confirm(f"{what} {letters(counts.letters)}?", err=True)


def print_counts(console: Console, counts: Counts) -> None:
    """How many letters a plan has, of which handlers and reasons, and what is to be known of them."""
    for handler, reasons in counts.handlers.items():
        say(console, f"  {handler or 'letters of other programs'}: {_said(reasons)}")
    for count, words in (
        (counts.done, "are done by now, as the ledger has it: they are skipped"),
        (counts.replaying, "were asked for too, and are on their way already"),
        (counts.too_large, "are larger than the topic takes to which they would go"),
        (counts.too_old, "were too large for the database, and Kafka has dropped them"),
        (counts.foreign, "are of other programs: they go to their source topic, where all of its groups read them"),
    ):
        if count:
            say(console, f"  {count:,} {words}", "yellow")
    if counts.edits:
        print_edits(console, counts.edits)
    for handler, stands in counts.stands.items():
        say(console, f"  {handler}: {_said(stands)}")
    for handler, count in counts.unknown_handlers.items():
        say(console, f"  {count:,} are of {handler}, which nobody knows: they are skipped", "yellow")
    # Where all have died equally often, or it is a replay, that is one of its warnings.
    again = {times: count for times, count in counts.replayed.items() if str(times) != "0"}
    if again and (len(again) > 1 or not counts.warnings):
        said = ", ".join(f"{count:,} {_times(int(times))}" for times, count in again.items())
        say(console, f"  died again after a replay: {said}", "yellow")
    for warning in counts.warnings:
        say(console, f"  {warning}", "yellow")


def print_edits(console: Console, edits: Mapping[str, Any]) -> None:
    """How many go back with another value, and why others do not."""
    say(console, f"  {edits['changed']:,} go back with another value")
    for name, words in (
        ("unchanged", "stay here: the patch changes nothing of them"),
        ("no_json", "stay here: they cannot be patched"),
        ("not_applied", "stay here: the patch does not apply"),
        ("not_valid", "stay here: their handlers would not take them after it"),
    ):
        if edits.get(name):
            say(console, f"  {edits[name]:,} {words}", "yellow")
            print_reasons(console, edits.get(f"{name}_reasons", ()))


def print_reasons(console: Console, reasons: Iterable[Mapping[str, Any]]) -> None:
    """Reasons with how many have each, and some letters that do."""
    for each in reasons:
        some = ", ".join(map(str, each["letters"]))
        say(console, f"    {each['count']:,}: {each['why']} (letters {some})")


def _said(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
