"""`bridge deadletters webhooks` and its commands: addresses that are told of alarms."""

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, print_found
from bridge.cli.deadletters.confirming import can_be_asked
from bridge.cli.deadletters.opening import opened
from bridge.cli.defaulting import Defaulting
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import cell, say

if TYPE_CHECKING:
    from bridge.deadletters.webhooks.webhooks import Shown

#: Seconds for which a test is waited for, and between two looks.
TEST_WITHIN: Final = 30.0
LOOK_EVERY: Final = 0.5


class Given(StrEnum):
    """For whom a webhook is written."""

    STANDARD = "standard"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


class Subject(StrEnum):
    """What a webhook tells of."""

    NEW = "new"
    REGRESSION = "regression"
    GROWTH = "growth"
    HALT = "halt"
    BREAKER = "breaker"


class _Webhooks(Defaulting):
    """`bridge deadletters webhooks` alone lists them."""

    default: ClassVar = "list"


webhooks = typer.Typer(cls=_Webhooks, no_args_is_help=False)
NameArgument = Annotated[str, typer.Argument(help="The webhook's name.")]


@webhooks.callback()
def webhooks_group() -> None:
    """List, add, try, switch and remove webhooks: who is told of new groups, regressions, growth, halts and breakers.

    A recorder (bridge deadletters record) notices and sends; no console need be open.

    Example: bridge deadletters webhooks add payments-chat --format slack
    """


@webhooks.command("list")
def webhooks_list(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a webhook.")] = False,
) -> None:
    """List them by name, each with what it was told last. `list` may be left out.

    Example: bridge deadletters webhooks --json
    """
    with opened(context) as desk:
        found = desk.webhooks.all()

    def show() -> None:
        if not found:
            say(console, "no webhooks: bridge deadletters webhooks add NAME")
            return
        table = Table("name", "address", "format", "of", "state", "last told", box=SIMPLE_HEAD)
        for each in found:
            state = "on" if each.off_at is None else f"off: {each.off_why}"
            table.add_row(each.name, cell(each.address), each.format, ", ".join(each.about), cell(state), _last(each))
        console.print(table)

    print_found([each.to_data() for each in found], as_json, show)


@webhooks.command("add")
def webhooks_add(
    context: typer.Context,
    name: NameArgument,
    form: Annotated[Given, typer.Option("--format", help="The format that its receiver takes.")] = Given.STANDARD,
    about: Annotated[list[Subject] | None, typer.Option("--of", help="Tell of this alone; may be repeated.")] = None,
    from_stdin: Annotated[
        bool,
        typer.Option("--stdin", help="Read the address (of PagerDuty: its integration key) from standard input."),
    ] = False,
    by: ByOption = "",
) -> None:
    """Add one, and print the secret by which its receiver knows what comes from here, alone, on standard output.

    The address, or PagerDuty's integration key, is asked for, or read from standard input: it is never an argument,
    since it may be a password.

    Example: bridge deadletters webhooks add payments-chat --format slack --of halt --of breaker
    """
    given = _asked("Integration key" if form is Given.PAGERDUTY else "Address", from_stdin)
    address, key = ("", given) if form is Given.PAGERDUTY else (given, "")
    with opened(context, makes=True) as desk:
        from bridge.deadletters.webhooks.events import About
        from bridge.deadletters.webhooks.formats import Format

        meant = [About(each) for each in about or ()]
        added = desk.webhooks.add(name, Format(form.value), meant, address, key, by or who())
    once = "; the secret that it is signed with, shown this once:" if added.secret else ""
    typer.echo(f"{added.name} was added; try it with `bridge deadletters webhooks test {added.name}`{once}", err=True)
    if added.secret:
        typer.echo(added.secret)


@webhooks.command("test")
def webhooks_test(context: typer.Context, name: NameArgument, by: ByOption = "") -> None:
    """Have a recorder send a test, and wait for what comes of it.

    Example: bridge deadletters webhooks test payments-chat
    """
    with opened(context) as desk:
        message, until = desk.webhooks.test(name, by or who()), time.monotonic() + TEST_WITHIN
        while (told := desk.webhooks.told(message)) is not None and told.state == "waiting" and not told.said:
            if time.monotonic() > until:
                fail(f"nobody has sent it in {TEST_WITHIN:g} s: start `bridge deadletters record`.", NOT_FOUND)
            time.sleep(LOOK_EVERY)
    if told is None or told.state != "sent":
        fail(f"it was not taken: {told.said if told else 'the webhook was removed'}", FAULTS)
    say(console, f"it was taken: {told.said}")


@webhooks.command("off")
def webhooks_off(context: typer.Context, name: NameArgument, by: ByOption = "") -> None:
    """Tell one nothing from now on; what waits for it is given up.

    Example: bridge deadletters webhooks off payments-chat
    """
    with opened(context) as desk:
        desk.webhooks.switch_off(name, by or who())
    say(console, f"{name.strip().lower()} is off")


@webhooks.command("on")
def webhooks_on(context: typer.Context, name: NameArgument, by: ByOption = "") -> None:
    """Tell one what happens from now on.

    Example: bridge deadletters webhooks on payments-chat
    """
    with opened(context) as desk:
        desk.webhooks.switch_on(name, by or who())
    say(console, f"{name.strip().lower()} is on")


@webhooks.command("remove")
def webhooks_remove(context: typer.Context, name: NameArgument, by: ByOption = "") -> None:
    """Remove one, with what it was told.

    Example: bridge deadletters webhooks remove payments-chat
    """
    with opened(context) as desk:
        desk.webhooks.remove(name, by or who())
    say(console, f"{name.strip().lower()} was removed")


def _last(found: "Shown") -> str:
    if not found.latest:
        return "nothing yet"
    last = found.latest[0]
    return cell(f"{last.type}: {last.state}{f', {last.said}' if last.said else ''}")


def _asked(what: str, from_stdin: bool) -> str:
    if from_stdin:
        read = sys.stdin.readline().strip()
        return read or fail(f"standard input has no {what.lower()} in its first line: nothing was changed.", FAULTS)
    if not can_be_asked():
        fail(f"nobody can be asked here, there is no terminal: pass the {what.lower()} with --stdin.", NOT_FOUND)
    return str(typer.prompt(what, hide_input=True, err=True))
