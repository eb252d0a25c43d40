"""The command `bridge deadletters simulate`: a policy tried on the dead letters of a handler."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.command_io import console, print_result, show_progress
from bridge.cli.deadletters.desk_access import open_desk
from bridge.cli.deadletters.filter_options import complete_handlers, with_filter_options
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.formats.group_decision import format_options
from bridge.formats.text_forms import format_count
from bridge.inspection.terminal_output import make_cell, print_line
from bridge.jobs.group_facts import format_letter_count, format_span

if TYPE_CHECKING:
    from bridge.deadletters.inspection.policy_trial import PolicyTrial
    from bridge.deadletters.model.policy_simulation import SimulationResult


@with_filter_options("ids", "handler")
def simulate(
    context: typer.Context,
    chosen: LetterFilter,
    handler: Annotated[str, typer.Argument(help="The handler, by its full name.", autocompletion=complete_handlers)],
    options: Annotated[list[str] | None, typer.Argument(help="option=value, as for `bridge policy set`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Simulate a changed retry policy on a handler's dead letters: their ends, and the number of attempts.

    Each attempt is assumed to fail with the error of the last one. The options override the policy in force: that of
    the code here with the changes of `bridge policy set`. Nothing is changed.

    Example: bridge deadletters simulate orders.handlers.charge max_retries=20 dead_letter_for=CardDeclined --since 7d
    """
    with open_desk(context) as desk, show_progress("judged") as heard:
        found = desk.simulations.run(handler, options or [], chosen, lambda done: heard(format_letter_count(done)))
    print_result(found.to_data(), as_json, lambda: _print_simulation(handler, options or [], found))


def _print_simulation(handler: str, options: list[str], found: "PolicyTrial") -> None:
    result = found.result
    print_line(
        console,
        f"{format_letter_count(result.letters)} of {handler}, if each attempt had failed like the last one",
    )
    if result.letters:
        console.print(_build_simulation_table(" ".join(options) or "by the policy in force", result))
    if found.in_force:
        print_line(
            console, f"The policy in force is the code's with {format_options(found.in_force)} (bridge policy show)."
        )
    if found.unknown:
        print_line(console, f"The changes of `bridge policy set` are unknown: {found.unknown}")
    for line in write_sentences(result, found.policy.get("retry_when")):
        print_line(console, line)


def _build_simulation_table(tried: str, result: "SimulationResult") -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("as it was", justify="right", no_wrap=True)
    table.add_column(make_cell(tried), justify="right", overflow="fold")
    for end in dict.fromkeys((*result.before, *result.after)):
        table.add_row(end, f"{result.before[end]:,}", f"{result.after[end]:,}")
    table.add_row("attempts in all", f"{result.attempts_before:,}", f"{result.attempts_after:,}")
    return table


def write_sentences(result: "SimulationResult", retry_when: str | None) -> Iterator[str]:
    """Yield the sentences below the table: the time of the last retry, evidence of success, and unknowns."""
    half, longest = result.retrying_for(0.5), result.retrying_for(1.0)
    if half is not None and longest is not None:
        for_half = f" for half of them, {format_span(longest)} at most" if longest > half else ""
        yield f"The last retry comes {format_span(half)} after the first failure{for_half}."
    if result.evidence:
        yield (
            f"Of {result.evidence:,} the fault was gone later: a letter of their group was replayed with success. "
            + (
                f"A retry comes after that for {result.saved:,}: they would hardly be here, and it were "
                f"{format_count(result.attempts_saved, 'attempt')}."
                if result.saved
                else "Of none of them a retry comes after that: they would be here as well."
            )
        )
    elif result.letters:
        yield "Whether a later attempt had succeeded is not known: no letter of theirs was replayed with success."
    for reason, count in result.not_judged.items():
        yield f"{format_letter_count(count)} died of what no policy decides on: {reason}."
    for kind, count in result.unknown.items():
        yield (
            f"{kind} is not imported here: {format_letter_count(count)} of it were judged by name, not by what it "
            "derives from."
        )
    if retry_when:
        yield f"retry_when ({retry_when}) was not asked: it would need the messages, and may decide otherwise."
