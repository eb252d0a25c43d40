"""`bridge deadletters simulate`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.answers import console, print_found
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.completing import handlers
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.progress import progress
from bridge.commands.printing import cell, say
from bridge.deadletters.letters.filters import Filter
from bridge.records.policies import words
from bridge.upkeep.facts import letters, span

if TYPE_CHECKING:
    from bridge.deadletters.letters.simulating import Simulated
    from bridge.deadletters.questions.simulations import Simulation


@filtered("ids", "handler")
def simulate(
    context: typer.Context,
    chosen: Filter,
    handler: Annotated[str, typer.Argument(help="By its whole name.", autocompletion=handlers)],
    options: Annotated[list[str] | None, typer.Argument(help="option=value, as for `bridge policy set`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Try a changed policy on a handler's dead letters: what would have become of them, and for how many calls.

    It is as if each attempt had failed with the error of the last. The options go over the policy in force: that of
    the code here, with what `bridge policy set` has changed of it. Nothing is changed.

    Example: bridge deadletters simulate orders.handlers.charge max_retries=20 dead_letter_for=CardDeclined --since 7d
    """
    with opened(context) as desk, progress("judged") as heard:
        found = desk.simulations.run(handler, options or [], chosen, lambda done: heard(letters(done)))
    print_found(found.to_data(), as_json, lambda: _print(handler, options or [], found))


def _print(handler: str, options: list[str], found: "Simulation") -> None:
    result = found.result
    say(console, f"{letters(result.letters)} of {handler}, as if each attempt had failed as its last one did")
    if result.letters:
        console.print(_table(" ".join(options) or "by the policy in force", result))
    if found.in_force:
        say(console, f"The policy in force is the code's with {words(found.in_force)} (bridge policy show).")
    if found.unknown:
        say(console, f"Whether `bridge policy set` has changed the code's policy is not known: {found.unknown}")
    for line in sentences(result, found.policy.get("retry_when")):
        say(console, line)


def _table(tried: str, result: "Simulated") -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("as it was", justify="right", no_wrap=True)
    table.add_column(cell(tried), justify="right", overflow="fold")
    for end in dict.fromkeys((*result.before, *result.after)):
        table.add_row(end, f"{result.before[end]:,}", f"{result.after[end]:,}")
    table.add_row("attempts in all", f"{result.attempts_before:,}", f"{result.attempts_after:,}")
    return table


def sentences(result: "Simulated", retry_when: str | None) -> Iterator[str]:
    """What a table does not say: for how long, what speaks for a success, and what cannot be known."""
    half, longest = result.retrying_for(0.5), result.retrying_for(1.0)
    if half is not None and longest is not None:
        for_half = f" for half of them, {span(longest)} at most" if longest > half else ""
        yield f"The last retry comes {span(half)} after the first failure{for_half}."
    if result.evidence:
        yield (
            f"Of {result.evidence:,} the fault was gone later: a letter of their group was replayed with success. "
            + (
                f"A retry comes after that for {result.saved:,}: they would hardly be here, and it were "
                f"{result.attempts_saved:,} attempts."
                if result.saved
                else "Of none of them a retry comes after that: they would be here as well."
            )
        )
    elif result.letters:
        yield "Whether a later attempt had succeeded is not known: no letter of theirs was replayed with success."
    for reason, count in result.not_judged.items():
        yield f"{letters(count)} died of what no policy decides on: {reason}."
    for kind, count in result.unknown.items():
        yield f"{kind} is not imported here: {letters(count)} of it were judged by name, not by what it derives from."
    if retry_when:
        yield f"retry_when ({retry_when}) was not asked: it would need the messages, and may decide otherwise."
