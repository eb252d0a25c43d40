"""`bridge redrive`: a range of a source topic, sent again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bridge.cli.answers import FAULTS, fail
from bridge.cli.deadletters.carrying import being_planned, carry_out
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody
from bridge.cli.deadletters.opening import need_extra, opened
from bridge.cli.deadletters.plan_options import CanaryOption, PlanJsonOption, PlanOnlyOption, TrailOption, WaitOption
from bridge.cli.deadletters.progress import errors
from bridge.cli.deadletters.replaying import print_planned
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.errors import NoMoment

_MOMENT = "earliest, latest, an offset, 2026-11-20T08:00 (UTC), 2h, today."


def redrive(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    since: Annotated[str, typer.Option("--from", help=f"From here on: {_MOMENT}")],
    until: Annotated[str, typer.Option("--to", help="Until before this.")] = "latest",
    partition: Annotated[list[int] | None, typer.Option(help="Of this partition alone.")] = None,
    handler: Annotated[list[str] | None, typer.Option(help="For this handler alone.")] = None,
    key: Annotated[str | None, typer.Option(help="Of this key alone: text, 0x… or base64:….")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what is done or discarded, or may be.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records a second at most.")] = None,
    canary: CanaryOption = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Send a range of a source topic again, through its replay topic. The group's offsets stay as they are.

    It is planned first: which records, and how their deliveries stand. Dead and lost deliveries are sent; those in
    flight are left alone; done and discarded ones, and those that the ledger no longer knows, only with --again.
    With --canary, records of all waves but the last have one attempt: what fails is dead again at once.

    Exits 1 if it cannot be done so, 2 if nobody can be asked and --yes is not said, or a server does not answer, 3 if
    the canary stopped, or with --wait if any died again, 75 if Kafka or Redis stopped answering or another process
    carries the plan, 130 after Ctrl-C.

    Example: bridge redrive orders --from 2026-11-20T08:00 --to 2026-11-20T09:30 --handler orders.handlers.charge
    """
    need_extra()
    from bridge.deadletters.letters import written
    from bridge.deadletters.plan.plan import Options
    from bridge.deadletters.redrive.redrive import Asked

    who_by = by or who()
    if not plan_only:
        need_somebody(yes)
    with opened(context, makes=True) as desk:
        key_of = None if key is None else written.key(key)
        limits = (tuple(partition or ()), tuple(handler or ()), key_of)
        asked = Asked(topic, _moment(since), _moment(until), *limits)
        with being_planned(), _shown() as looked:
            plan = desk.redrive.plan(asked, Options(rate, canary, again=again), who_by, why, looked)
        if plan_only:
            print_planned(plan, as_json)
            return
        if not confirmed(yes, plan.what, plan.counts):
            say(errors, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        carry_out(desk, plan, who_by, wait, as_json)


def _moment(text: str) -> str:
    """As Kafka is asked for it: a time with its zone."""
    from bridge.deadletters.redrive.written import moment

    try:
        return moment(text, time.time())
    except NoMoment as error:
        fail(str(error), FAULTS)


@contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, while the range is looked through."""
    columns = (TextColumn("records looked at"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda seen, of: progress.update(task, completed=seen, total=of)
