"""The commands `bridge deadletters webhooks`: list, add, test, switch and remove them."""

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bridge.cli.command_io import FAULTS, NOT_FOUND, console, fail, print_result, read_secret
from bridge.cli.command_options import ByOption, ListGroup, ListJsonOption
from bridge.cli.deadletters.desk_access import open_desk
from bridge.inspection.terminal_output import make_cell, print_line

if TYPE_CHECKING:
    from bridge.deadletters.alarms.webhook_service import ShownWebhook

#: Seconds for which a test is waited for, and between two polls.
TEST_SECONDS: Final = 30.0
TEST_POLL_PERIOD: Final = 0.5


class WebhookFormatOption(StrEnum):
    """The formats of webhooks, as options."""

    STANDARD = "standard"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


class WebhookSubject(StrEnum):
    """The kinds of alarms that a webhook can receive, as options."""

    NEW = "new"
    REGRESSION = "regression"
    GROWTH = "growth"
    HALT = "halt"
    BREAKER = "breaker"


webhooks = typer.Typer(cls=ListGroup, no_args_is_help=False)
WebhookNameArgument = Annotated[str, typer.Argument(help="The webhook's name.")]


@webhooks.callback()
def webhooks_group() -> None:
    """List, add, test, switch and remove webhooks for new groups, regressions, growth, halts and circuit breakers.

    A recorder (bridge deadletters record) sends the events; no console need run.

    Example: bridge deadletters webhooks add payments-chat --format slack
    """


@webhooks.command("list")
def webhooks_list(context: typer.Context, as_json: ListJsonOption = False) -> None:
    """List webhooks by name, each with its last event. `list` may be left out.

    Example: bridge deadletters webhooks --json
    """
    with open_desk(context) as desk:
        found = desk.webhooks.list_webhooks()

    def show() -> None:
        if not found:
            print_line(console, "no webhooks: bridge deadletters webhooks add NAME")
            return
        table = Table("name", "address", "format", "events", "state", "last event", box=SIMPLE_HEAD)
        for each in found:
            state = "on" if each.off_at is None else f"off: {each.off_why}"
            table.add_row(
                each.name,
                make_cell(each.address),
                each.format,
                ", ".join(each.about),
                make_cell(state),
                _describe_last(each),
            )
        console.print(table)

    print_result([each.to_data() for each in found], as_json, show)


@webhooks.command("add")
def webhooks_add(
    context: typer.Context,
    name: WebhookNameArgument,
    form: Annotated[
        WebhookFormatOption, typer.Option("--format", help="The format that its receiver takes.")
    ] = WebhookFormatOption.STANDARD,
    about: Annotated[
        list[WebhookSubject] | None, typer.Option("--of", help="Send events of this kind alone; may be repeated.")
    ] = None,
    from_stdin: Annotated[
        bool,
        typer.Option("--stdin", help="Read the address (of PagerDuty: its integration key) from standard input."),
    ] = False,
    by: ByOption = "",
) -> None:
    """Add a webhook, and print its signing secret, alone, on standard output.

    The address, or PagerDuty's integration key, is asked for, or read from standard input: it is never an argument,
    since it may be a secret.

    Example: bridge deadletters webhooks add payments-chat --format slack --of halt --of breaker
    """
    has_key = form is WebhookFormatOption.PAGERDUTY
    given = read_secret("Integration key" if has_key else "Address", "--stdin", from_stdin=from_stdin).strip()
    address, key = ("", given) if has_key else (given, "")
    with open_desk(context, makes=True) as desk:
        from bridge.deadletters.alarms.alarm_event import AlarmKind
        from bridge.deadletters.alarms.webhook_format import WebhookFormat

        meant = [AlarmKind(each) for each in about or ()]
        added = desk.webhooks.add(name, WebhookFormat(form.value), meant, address, key, by)
    once = "; the secret that it is signed with, shown this once:" if added.secret else ""
    typer.echo(f"{added.name} was added; try it with `bridge deadletters webhooks test {added.name}`{once}", err=True)
    if added.secret:
        typer.echo(added.secret)


@webhooks.command("test")
def webhooks_test(context: typer.Context, name: WebhookNameArgument, by: ByOption = "") -> None:
    """Have a recorder send a test event, and wait for the receiver's answer.

    Example: bridge deadletters webhooks test payments-chat
    """
    with open_desk(context) as desk:
        message, until = desk.webhooks.test(name, by), time.monotonic() + TEST_SECONDS
        while (told := desk.webhooks.find_delivery(message)) is not None and told.state == "waiting" and not told.said:
            if time.monotonic() > until:
                fail(
                    f"the event was not sent within {TEST_SECONDS:g} s: start `bridge deadletters record`.",
                    NOT_FOUND,
                )
            time.sleep(TEST_POLL_PERIOD)
    if told is None or told.state != "sent":
        fail(f"the test event was not accepted: {told.said if told else 'the webhook was removed'}", FAULTS)
    print_line(console, f"the test event was accepted: {told.said}")


@webhooks.command("off")
def webhooks_off(context: typer.Context, name: WebhookNameArgument, by: ByOption = "") -> None:
    """Switch a webhook off; its waiting events are given up.

    Example: bridge deadletters webhooks off payments-chat
    """
    with open_desk(context) as desk:
        desk.webhooks.switch_off(name, by)
    print_line(console, f"{name.strip().lower()} is off")


@webhooks.command("on")
def webhooks_on(context: typer.Context, name: WebhookNameArgument, by: ByOption = "") -> None:
    """Switch a webhook on, for events from now on.

    Example: bridge deadletters webhooks on payments-chat
    """
    with open_desk(context) as desk:
        desk.webhooks.switch_on(name, by)
    print_line(console, f"{name.strip().lower()} is on")


@webhooks.command("remove")
def webhooks_remove(context: typer.Context, name: WebhookNameArgument, by: ByOption = "") -> None:
    """Remove a webhook, with its events.

    Example: bridge deadletters webhooks remove payments-chat
    """
    with open_desk(context) as desk:
        desk.webhooks.remove(name, by)
    print_line(console, f"{name.strip().lower()} was removed")


def _describe_last(found: "ShownWebhook") -> str:
    if not found.latest:
        return "nothing yet"
    last = found.latest[0]
    return make_cell(f"{last.type}: {last.state}{f', {last.said}' if last.said else ''}")
