"""The commands run, reset and demo."""

from typing import Annotated

import typer

from bridge import bridge_process
from bridge.cli.command_io import AGAIN, FAULTS, NOT_FOUND, console, error_console, fail, load_app
from bridge.cli.command_options import FormatOption, LevelOption, LogFormat, LogLevel
from bridge.cli.deadletters.confirmation import YesOption, require_terminal
from bridge.cli.deadletters.service_commands import build_recorder_beside
from bridge.errors import (
    CannotReset,
    ConsumerFailed,
    KafkaUnavailable,
    LedgerCannotFsync,
    LedgerUnavailable,
    UnfitRedis,
    UnfitTopic,
)
from bridge.formats import log_format as logs
from bridge.inspection.offset_reset import ResetPlan, apply_reset, plan_reset
from bridge.inspection.terminal_output import print_line


def run(
    context: typer.Context,
    level: LevelOption = LogLevel.INFO,
    form: FormatOption = LogFormat.TEXT,
    recording: Annotated[
        bool, typer.Option("--record", help="Record dead letters too, as `bridge deadletters record` does.")
    ] = False,
) -> None:
    """Run the bridge until SIGTERM or Ctrl-C.

    Example: bridge -A tasks run --log-format json
    """
    run_bridge(context.obj, level, form, recording=recording)


def run_bridge(name: str, level: LogLevel, form: LogFormat, *, recording: bool = False) -> None:
    """Run it until it is told to end, or must; with a recorder beside it, if that is asked for."""
    logs.begin_log(level.value, form.value)
    found = load_app(name, desk=recording)
    try:
        bridge_process.run_bridge(*found, build_recorder_beside(*found) if recording else None)
    except (LedgerCannotFsync, UnfitRedis, UnfitTopic) as error:
        fail(str(error), FAULTS)
    except ConsumerFailed as error:
        fail(str(error), AGAIN)


def reset(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as ISO 8601.")],
    again: Annotated[bool, typer.Option("--again", help="Run again what is settled from there on.")] = False,
    yes: YesOption = False,
) -> None:
    """Move the group's committed offsets of a topic, while no bridge runs. Settled records are skipped, unless --again.

    It is planned first: from where to where, and how many deliveries are passed over. Those are discarded, and do not
    run; so that is asked for, unless --yes is said.

    Exits 1 if it cannot be done so or nobody agreed, 2 if nobody can be asked and --yes is not said, or a server does
    not answer.

    Example: bridge reset orders --to 2026-01-31T12:00 --again
    """
    _, chosen, routes = load_app(context.obj)
    try:
        plan = plan_reset(chosen, routes, topic, to)
        _show_reset_plan(plan, again=again)
        if plan.discarded and not yes:
            require_terminal(yes)
            if not typer.confirm(f"discard {plan.discarded:,} deliveries?", err=True):
                fail("nothing was moved.", FAULTS)
        apply_reset(chosen, routes, plan, again=again)
    except CannotReset as error:
        fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail(str(error), NOT_FOUND)
    for each in plan.moves:
        before = "nothing" if each.before is None else each.before
        console.print(f"{topic}-{each.partition}: {before} → {each.after}")


def _show_reset_plan(plan: ResetPlan, *, again: bool) -> None:
    """Say on stderr what is passed over, and what is read."""
    for each in plan.moves:
        if each.discarded:
            before = "nothing" if each.before is None else each.before
            print_line(
                error_console,
                f"  {plan.topic}-{each.partition}: {before} → {each.after} passes over {each.discarded:,} deliveries "
                "that have not run",
                "yellow",
            )
    settled = "what is settled of them runs again" if again else "what is settled of them is skipped"
    print_line(error_console, f"  {plan.records:,} records are read from there on; {settled}")


def demo(
    once: Annotated[bool, typer.Option("--once", help="End when every record has ended.")] = False,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="How many orders to produce: 100 with --once, else no end."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same orders.")] = None,
) -> None:
    """Show records being handled, retried and dead-lettered, on a Kafka and a Redis that it brings along.

    Ends at Ctrl-C, with a table of what became of every record.

    With --once it exits 0 when every record has ended, and 1 otherwise.

    Example: bridge demo --once
    """
    from bridge.demo.demo_run import run_demo

    raise typer.Exit(run_demo(once=once, records=records, seed=seed))
