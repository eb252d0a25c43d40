"""The command `bridge discard`."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, loaded, print_found
from bridge.commands.discard import count_queued, discard_queued, find_order_risk
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, UnknownHandler, UnknownTopic


def discard(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A source topic.")],
    handler: Annotated[list[str] | None, typer.Option(help="Of this handler alone.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking: for scripts.")] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Of an ordered topic that is not halted too: the next of a key or partition may begin beside a "
            "delivery that runs, so their order may be lost.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the number of each handler, as JSON.")] = False,
) -> None:
    """Give up the deliveries of a topic that are queued: no worker runs them, and no bridge hands them off again.

    `celery purge` only empties the queue: what it took comes back after `kafka_stuck_after`, an hour. Run this before
    or after it. The audit counts what was given up as discarded; `bridge redrive --again` brings it back. Deliveries
    that wait for a retry in Kafka, or came from one, are left alone. One that is running goes on: it is done if it
    succeeds, and not retried if it fails. Halt the topic first if nothing more of it is to be queued.

    An ordered topic must be halted, or it is refused: the next of a key or partition does not wait for a delivery that
    was discarded while it ran. Resume it once nothing of it runs. --anyway takes that risk.

    Example: bridge discard orders --handler orders.handlers.charge
    """
    _, chosen, routes = loaded(context.obj)
    names = handler or []
    if chosen.ledger_url is None:
        fail("the ledger has which deliveries are queued, and there is none: set LEDGER_URL.", FAULTS)
    try:
        queued = count_queued(chosen, routes, topic, names)
        _print(queued)
        if not any(queued.values()):
            print_found(queued, as_json, lambda: None)
            return
        if risk := find_order_risk(chosen, topic):
            if not anyway:
                fail(
                    f"{risk} Nothing was discarded. Halt the topic first (bridge halt {topic} --why …), and resume it "
                    "once nothing of it runs; or say --anyway.",
                    FAULTS,
                )
            print(risk, file=sys.stderr)
        if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
            fail("nobody can be asked here, there is no terminal: say --yes to discard without a question.", NOT_FOUND)
        if not yes and not typer.confirm(f"discard {sum(queued.values()):,} deliveries?", err=True):
            fail("nothing was discarded.", FAULTS)
        found = discard_queued(chosen, routes, topic, names)
    except (UnknownTopic, UnknownHandler) as error:
        fail(str(error), FAULTS)
    except (KafkaUnavailable, LedgerUnavailable, NotDecided) as error:
        fail(str(error), NOT_FOUND)
    print_found(found, as_json, lambda: console.print(f"discarded {sum(found.values()):,} deliveries"))


def _print(queued: Mapping[str, int]) -> None:
    for name, count in queued.items():
        print(f"  {name}: {count:,} queued", file=sys.stderr)
