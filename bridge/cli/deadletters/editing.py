"""`bridge deadletters edit`, which mends one letter, and `check`, which tells which their handlers would take."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.console import Console

from bridge.cli.answers import FAULTS, console, fail, print_found
from bridge.cli.deadletters.absent import tell_absent
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.carrying import carry_out
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody, print_reasons
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.plan_options import PlanJsonOption, PlanOnlyOption, TrailOption, WaitOption
from bridge.cli.deadletters.progress import errors
from bridge.cli.deadletters.replaying import print_differences, print_planned
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.letters.filters import Filter
from bridge.upkeep.facts import letters

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk
    from bridge.deadletters.mending.checking import Checked


def edit(
    context: typer.Context,
    letter: Annotated[int, typer.Argument(help="A letter, by its id.")],
    value: Annotated[str | None, typer.Option(help="The new value, as text (UTF-8).")] = None,
    file: Annotated[str | None, typer.Option(help="The new value, byte for byte; - is the input.")] = None,
    tombstone: Annotated[bool, typer.Option("--tombstone", help="No value.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where its handler does not take it.")] = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Send a letter back with another value, which its handler's codec and model must take. Its own is kept.

    Without a value an editor opens with the one that it has. Key and headers stay as they are: by the key a record has
    its place in the order of others, and what it was is told by its headers.

    Exits 1 if the handler does not take it, 2 if nobody can be asked and --yes is not said, 3 with --wait if it died
    again.

    Example: bridge deadletters edit 4711 --file order.json --why "the client sent cents" --wait
    """
    who_by = by or who()
    if not plan_only:
        need_somebody(yes)
    with opened(context) as desk:
        found = _given(desk, letter, value, file, tombstone)
        plan = desk.mending.edit(letter, found, who_by, why, force=force)
        if not yes:
            print_differences(desk, plan)
        if plan_only:
            print_planned(plan, as_json)
            return
        if not confirmed(yes, plan.what, plan.counts):
            say(errors, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        carry_out(desk, plan, who_by, wait, as_json)


@filtered()
def check(
    context: typer.Context,
    chosen: Filter,
    as_json: Annotated[bool, typer.Option("--json", help="Print {letters, valid, upgraded, invalid, …}.")] = False,
) -> None:
    """Tell which letters their handlers would take now, by the code that is here: codec, model and `upgrade`.

    No handler runs, and nothing is sent. Exits 3 if some would not be taken.

    Example: bridge deadletters check --group 7
    """
    with opened(context) as desk:
        found = desk.mending.check(chosen)
        print_found(found.to_data(), as_json, lambda: _print_checked(console, found))
        if not found.letters:
            tell_absent(desk, chosen)
    raise typer.Exit(3 if found.invalid.count else 0)


def _given(desk: "Desk", letter: int, value: str | None, file: str | None, tombstone: bool) -> bytes | None:
    """The new value; of a text that was written on a command line, its bytes in UTF-8."""
    if (value is not None) + (file is not None) + tombstone > 1:
        fail("say one of --value, --file and --tombstone.", FAULTS)
    if tombstone:
        return None
    if value is not None:
        return value.encode("utf-8", "surrogateescape")
    if file is not None:
        return _of_file(file)
    if not sys.stdin.isatty():
        fail("say the new value: --value, --file or --tombstone.", FAULTS)
    return _edited(desk, letter)


def _edited(desk: "Desk", letter: int) -> bytes:
    """What a person makes of a letter's value in an editor."""
    before = desk.mending.text(letter)
    after = click.edit(before, extension=".json")
    if after is None or after == before:
        fail("nothing was changed, and nothing is sent.", FAULTS)
    # Editors end a file with a line break; a value has one only if it had one.
    return (after if before.endswith("\n") else after.removesuffix("\n")).encode()


def _of_file(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        fail(f"{path!r} cannot be read: {error.strerror}.", FAULTS)


def _print_checked(to: Console, found: "Checked") -> None:
    say(to, f"{found.valid:,} of {letters(found.letters)} would be taken as they are")
    if found.upgraded:
        say(to, f"{found.upgraded:,} would be taken after their handler's upgrade")
    for reasons, words in ((found.invalid, "would not be taken"), (found.unknown, "cannot be told of here")):
        if reasons.count:
            say(to, f"{reasons.count:,} {words}:", "yellow")
            print_reasons(to, reasons.to_data())
