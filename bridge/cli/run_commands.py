"""The commands run, reset and demo."""

from typing import Annotated

import typer

from bridge.cli.command_io import (
    AGAIN,
    FAULTS,
    console,
    error_console,
    fail,
    fail_unavailable,
    load_app,
    require_terminal,
)
from bridge.cli.command_options import FormatOption, LevelOption, LogFormat, LogLevel, YesOption
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
from bridge.formats.text_forms import format_count
from bridge.inspection.report_tables import describe_released
from bridge.inspection.terminal_output import print_line
from bridge.operator_actions.offset_reset import ResetPlan, apply_reset, plan_reset


def run(
    context: typer.Context,
    level: LevelOption = LogLevel.INFO,
    form: FormatOption = LogFormat.TEXT,
    recording: Annotated[
        bool, typer.Option("--record", help="Record dead letters too, like `bridge deadletters record`.")
    ] = False,
) -> None:
    """Run the bridge until SIGTERM or Ctrl-C.

    Example: bridge -A tasks run --log-format json
    """
    run_bridge(context.obj, level, form, recording=recording)


def run_bridge(name: str, level: LogLevel, form: LogFormat, *, recording: bool = False) -> None:
    """Run the bridge until a signal or a failure ends it; with a recorder beside it if `recording`."""
    # No other command needs the consumer loop, the health server and prometheus_client.
    from bridge import bridge_process

    logs.begin_log(level.value, form.value)
    loaded = load_app(name, desk=recording)
    try:
        bridge_process.run_bridge(*loaded, build_recorder_beside(*loaded) if recording else None)
    except (LedgerCannotFsync, UnfitRedis, UnfitTopic) as error:
        fail(str(error), FAULTS)
    except ConsumerFailed as error:
        fail(str(error), AGAIN)


def reset(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as ISO 8601.")],
    again: Annotated[bool, typer.Option("--again", help="Run again what is settled from the new offset on.")] = False,
    yes: YesOption = False,
) -> None:
    """Move the group's committed offsets of a topic, while no bridge runs. Settled records are skipped, unless --again.

    The command first prints a plan: the old and new offsets, how many deliveries are skipped, and which missing offsets
    below the new one the audit no longer reports. Skipped deliveries are discarded and do not run: the command asks for
    confirmation, or takes --yes.

    Example: bridge reset orders --to 2026-01-31T12:00 --again
    """
    _, chosen, routes = load_app(context.obj)
    try:
        plan = plan_reset(chosen, routes, topic, to)
        _show_reset_plan(plan, again=again)
        if plan.discarded and not yes:
            require_terminal(yes)
            if not typer.confirm(f"discard {format_count(plan.discarded, 'delivery')}?", err=True):
                fail("nothing was moved.", FAULTS)
        apply_reset(chosen, routes, plan, again=again)
    except CannotReset as error:
        fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        fail_unavailable(error)
    for move in plan.moves:
        before = "nothing" if move.before is None else move.before
        console.print(f"{topic}-{move.partition}: {before} → {move.after}")


def _show_reset_plan(plan: ResetPlan, *, again: bool) -> None:
    """Print on stderr how many deliveries are skipped and how many records are read."""
    for move in plan.moves:
        if move.discarded:
            before = "nothing" if move.before is None else move.before
            print_line(
                error_console,
                f"  {plan.topic}-{move.partition}: {before} → {move.after} skips "
                f"{format_count(move.discarded, 'delivery')} "
                "that have not run",
                "yellow",
            )
        for line in move.released:
            print_line(error_console, f"  {describe_released(plan.topic, line)}", "yellow")
    settled = "settled deliveries run again" if again else "settled deliveries are skipped"
    print_line(
        error_console, f"  {format_count(plan.records, 'record', 'are')} read from the new offsets on; {settled}"
    )


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit when every record has ended.")] = False,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="The number of orders to produce: 100 with --once, else no limit."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="A seed: the same seed gives the same orders.")] = None,
) -> None:
    """Show records being handled, retried and dead-lettered, with a Kafka and a Redis of its own.

    Ctrl-C ends it, with a table of the outcome of every record.

    Example: bridge demo --once
    """
    from bridge.demo.demo_run import run_demo

    raise typer.Exit(run_demo(once=once, records=records, seed=seed))
