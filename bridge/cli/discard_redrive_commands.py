"""The commands discard (of queued deliveries) and redrive (of a range of a source topic)."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bridge.cli.command_io import (
    FAULTS,
    NOT_FOUND,
    console,
    error_console,
    fail,
    fail_unavailable,
    load_app,
    print_result,
    require_terminal,
)
from bridge.cli.command_options import (
    ByOption,
    CanaryOption,
    PlanJsonOption,
    PlanOnlyOption,
    TrailOption,
    WaitOption,
    YesOption,
)
from bridge.cli.deadletters.desk_access import open_desk, require_extra
from bridge.cli.deadletters.plan_run import carry_out_plan, report_interruption
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NoMoment, NotDecided, UnknownHandler, UnknownTopic
from bridge.formats.text_forms import format_count
from bridge.operator_actions.queue_discard import count_queued, discard_queued, find_order_risk


def discard(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    handler: Annotated[list[str] | None, typer.Option(help="Only deliveries of this handler.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation: for scripts.")] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Discard of an ordered topic that is not halted, too: the next delivery of a key or partition may "
            "then begin beside one that runs, so their order may be lost.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the number for each handler as JSON.")] = False,
) -> None:
    """Discard the queued deliveries of a topic: no worker runs them, and no bridge hands them off again.

    `celery purge` only empties the queue: the bridge hands its deliveries off again after `kafka_stuck_after`, an hour.
    Run this command before or after it. The audit counts the deliveries as discarded; `bridge redrive --again` sends
    them again. Deliveries that wait for a retry in Kafka, or came from one, are left alone. A running delivery
    continues: it is done if it succeeds, and not retried if it fails. Halt the topic first if no more of its
    deliveries are to be queued.

    An ordered topic must be halted: the next delivery of a key or partition does not wait for a running one that was
    discarded. Resume the topic when none of its deliveries runs. --anyway takes that risk.

    Example: bridge discard orders --handler orders.handlers.charge
    """
    _, chosen, routes = load_app(context.obj)
    names = handler or []
    if chosen.ledger_url is None:
        fail("there is no ledger, which knows the queued deliveries: set LEDGER_URL.", FAULTS)
    try:
        queued = count_queued(chosen, routes, topic, names)
        _print_queued(queued)
        if not any(queued.values()):
            print_result(queued, as_json, lambda: None)
            return
        if risk := find_order_risk(chosen, topic):
            if not anyway:
                fail(
                    f"{risk} Nothing was discarded. Halt the topic first (bridge halt {topic} --why …), and resume it "
                    "when none of its deliveries runs; or add --anyway.",
                    FAULTS,
                )
            print(risk, file=sys.stderr)
        if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
            fail("there is no terminal to ask for confirmation: add --yes to discard without a question.", NOT_FOUND)
        if not yes and not typer.confirm(f"discard {format_count(sum(queued.values()), 'delivery')}?", err=True):
            fail("Nothing was discarded.", FAULTS)
        discarded = discard_queued(chosen, routes, topic, names)
    except (UnknownTopic, UnknownHandler) as error:
        fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable, NotDecided) as error:
        fail_unavailable(error)
    print_result(
        discarded, as_json, lambda: console.print(f"discarded {format_count(sum(discarded.values()), 'delivery')}")
    )


def _print_queued(queued: Mapping[str, int]) -> None:
    for name, count in queued.items():
        print(f"  {name}: {count:,} queued", file=sys.stderr)


_MOMENT_HELP = "earliest, latest, an offset, 2026-11-20T08:00 (UTC), 2h, today."


def redrive(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    since: Annotated[str, typer.Option("--from", help=f"The first record: {_MOMENT_HELP}")],
    until: Annotated[str, typer.Option("--to", help="The end, which is not sent.")] = "latest",
    partition: Annotated[list[int] | None, typer.Option(help="Only records of this partition.")] = None,
    handler: Annotated[list[str] | None, typer.Option(help="Only for this handler.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key: text, 0x… or base64:….")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Send deliveries that are or may be done or discarded, too.")
    ] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, help="The most records a second.")] = None,
    canary: CanaryOption = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Send a range of a source topic again, through its replay topic. The group's offsets stay as they are.

    The command first prints a plan: the records, and the fates of their deliveries. It sends dead and lost deliveries,
    and leaves those in flight alone. It sends done and discarded ones, and those that the ledger no longer knows, only
    with --again. With --canary, records of all waves but the last have one attempt: a failure is dead again at once.

    Example: bridge redrive orders --from 2026-11-20T08:00 --to 2026-11-20T09:30 --handler orders.handlers.charge
    """
    require_extra()
    from bridge.deadletters.model import filter_syntax
    from bridge.deadletters.model.bulk_plan import PlanOptions
    from bridge.deadletters.replay.redrive_plan import RedriveRequest

    require_terminal(yes or plan_only)
    with open_desk(context, makes=True) as desk:
        key_of = None if key is None else filter_syntax.parse_key(key)
        limits = (tuple(partition or ()), tuple(handler or ()), key_of)
        asked = RedriveRequest(topic, _read_moment(since), _read_moment(until), *limits)
        with report_interruption(), _show_range_progress() as looked:
            plan = desk.redrive.plan(asked, PlanOptions(rate, canary, again=again), by, why, looked)
        carry_out_plan(desk, plan, by, plan_only=plan_only, yes=yes, wait=wait, as_json=as_json)


def _read_moment(text: str) -> str:
    """Return a moment as Kafka takes it, a time with its zone; exit if it cannot be read."""
    from bridge.deadletters.model.filter_syntax import parse_range_end

    try:
        return parse_range_end(text, time.time())
    except NoMoment as error:
        fail(str(error), FAULTS)


@contextmanager
def _show_range_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal while the range is searched."""
    columns = (TextColumn("records read"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=error_console, disable=not error_console.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda seen, of: progress.update(task, completed=seen, total=of)
