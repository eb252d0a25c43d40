"""The command `bridge deadletters shadow`: letters through the code that is here, without effects."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.command_io import BAD, FAULTS, OK, console, fail, print_result, show_progress
from bridge.cli.command_options import ByOption
from bridge.cli.deadletters.desk_access import open_desk, report_absent
from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.cli.deadletters.plan_run import print_reasons
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.inspection.terminal_output import print_line

if TYPE_CHECKING:
    from bridge.deadletters.editing.shadow_replay import ShadowResult

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Letters at most, the newest.")]
SecondsOption = Annotated[float, typer.Option("--seconds", min=1, help="Seconds for all letters.")]
LetterSecondsOption = Annotated[float, typer.Option("--letter-seconds", min=0.1, help="Seconds for one letter.")]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="NAME:PORT of a service that handlers may reach: what they send takes effect."),
]
AllowDatabaseOption = Annotated[
    list[str] | None,
    typer.Option("--allow-database", help="NAME:PORT of a PostgreSQL: all that handlers write is rolled back."),
]
PlanOption = Annotated[int | None, typer.Option("--plan", help="The letters of a plan, before it is applied.")]


@with_filter_options()
def shadow(
    context: typer.Context,
    chosen: LetterFilter,
    plan: PlanOption = None,
    limit: LimitOption = 500,
    seconds: SecondsOption = 300.0,
    letter_seconds: LetterSecondsOption = 5.0,
    allow_host: AllowHostOption = None,
    allow_database: AllowDatabaseOption = None,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print {letters, passed, failed, unknown, …}.")] = False,
) -> None:
    """Run open letters through the handlers of the code that is here, without effects, and count what would pass.

    Each letter runs in a process of its own. Messages of `message.publish` and Celery's tasks are counted and not sent.
    A SQLite file is a copy in memory. In a PostgreSQL of --allow-database nothing is committed, if the driver is
    psycopg. Other connections, programs and changes of files are refused: such a letter counts as not judged.
    With --group the result is noted on the group.

    Example: bridge deadletters shadow --group 7
    """
    from bridge.deadletters.editing.shadow_replay import ShadowOptions

    if plan is not None and chosen != ALL_LETTERS:
        fail("--plan takes the letters of the plan: pass no other filter.", FAULTS)
    hosts, databases = _read_addresses(allow_host), _read_addresses(allow_database)
    options = ShadowOptions(limit, seconds, letter_seconds, hosts, databases)
    with open_desk(context) as desk:
        if plan is not None:
            chosen = desk.shadows.find_plan_letters(plan)
        with show_progress("shadow") as heard:
            found = desk.shadows.run(chosen, options, heard)
        if len(chosen.groups) == 1 and found.letters:
            desk.notes.on_group(chosen.groups[0], found.summary, by, "shadow")
        print_result(found.to_data(), as_json, lambda: _print_shadow(found))
        if not found.letters:
            report_absent(desk, chosen)
    raise typer.Exit(BAD if found.failed or found.unknown.count else OK)


def _read_addresses(given: Sequence[str] | None) -> tuple[str, ...]:
    for address in given or ():
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            fail(f"{address!r} is no address: pass the name and the port that the handler uses, as db:5432.", FAULTS)
    return tuple(given or ())


def _print_shadow(found: "ShadowResult") -> None:
    pace = f", {found.letters / found.seconds:.0f} letters a second" if found.seconds else ""
    ran = "" if found.matched == str(found.letters) else f" of {found.matched} open letters, the newest"
    print_line(console, f"{found.letters:,} letters ran{ran} ({found.seconds:.1f} s{pace})")
    print_line(console, f"{found.passed:,} would pass", "green" if found.passed else None)
    if found.failed:
        print_line(console, f"{found.failed:,} would fail:", "red")
        for each in found.failures:
            place = f" at {each.group.place}" if each.group.place else ""
            same = "as before" if each.same == each.count else f"{each.same:,} of them as before"
            some = ", ".join(map(str, each.letters))
            print_line(console, f"    {each.count:,}: {each.group.error_class}{place}, {same} (letters {some})")
            print_line(console, f"        {each.message[:300]}")
    if found.unknown.count:
        print_line(console, f"{found.unknown.count:,} could not be judged:", "yellow")
        print_reasons(console, found.unknown.to_data())
    for counts, words in ((found.published, "to topic"), (found.tasks, "of task")):
        for name, count in counts.most_common():
            print_line(console, f"Those that pass would send {count:,} {words} {name}; nothing was sent.")
    for sentence in found.list_limits():
        print_line(console, sentence, "yellow")
