"""`python -m lossless`: commands for the operator of a broker."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from typing import Any

import redis
from kombu.exceptions import OperationalError
from kombu.utils.imports import symbol_by_name

from lossless import transport
from lossless.sentinel_address import SentinelUrlConnection
from lossless.transport.queue_drain import OwnersLive, QueueDrain

HELP = """\
Move everything that only this transport's workers would find into the queues, where kombu's own workers find it: what
killed workers held (marked as redelivered), what waits for its time (workers on kombu's transport keep it in their
memory until then), and what shut gates have set aside, which runs then: kombu's workers know no gates. Stop all
workers and bridges on this transport first, and what sends countdowns through it.

Exit codes: 0 all is in the queues; 1 something is left, or Redis did not answer: run it again; 2 wrong arguments;
3 workers still run, and nothing was moved.

Example: CELERY_BROKER_URL=redis://localhost:6379/0 python -m lossless drain
"""
BROKER = "default: CELERY_BROKER_URL"
CREDENTIALS = "module:function that gives user and password; default: REDIS_CREDENTIALS"
WATCH = "for how long no worker must show that it lives (default 12)"


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lossless", description="Celery on Redis that loses nothing.")
    commands = parser.add_subparsers(dest="command", required=True)
    drain = commands.add_parser(
        "drain",
        help="before going back to kombu's own transport",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    drain.add_argument("--broker", metavar="URL", default=os.environ.get("CELERY_BROKER_URL"), help=BROKER)
    drain.add_argument("--prefix", default="", help="global_keyprefix of broker_transport_options")
    drain.add_argument("--master", metavar="NAME", help="master_name of broker_transport_options, for sentinel://")
    drain.add_argument("--credentials", metavar="NAME", default=os.environ.get("REDIS_CREDENTIALS"), help=CREDENTIALS)
    drain.add_argument("--watch", type=float, default=12.0, metavar="SECONDS", help=WATCH)
    options = parser.parse_args(arguments)
    if not options.broker:
        parser.error("which broker? Set CELERY_BROKER_URL, or give --broker")
    try:
        return _drain(options)
    except (redis.RedisError, OperationalError, OSError) as error:
        print(f"Redis did not answer: {error}. What was moved is in its queue; run it again", file=sys.stderr)
        return 1


def _drain(options: Any) -> int:
    name = options.credentials
    transport.use(transport.FunctionCredentials(lambda: symbol_by_name(name), "--credentials") if name else None)
    settings = {"global_keyprefix": options.prefix, **({"master_name": options.master} if options.master else {})}
    with SentinelUrlConnection(options.broker, transport_options=settings) as connection:
        channel: Any = connection.channel()
        drain = QueueDrain(redis.Redis(connection_pool=channel.pool), channel.keys)
        beats = drain.beats()
        if beats:
            print(f"Watching {len(beats)} owners of messages for {options.watch:g} s", flush=True)
            time.sleep(options.watch)
        try:
            if drain.beats().items() - beats.items():
                raise OwnersLive
            held = drain.held(beats)
        except OwnersLive:
            print("Workers still run on this transport: stop them first", file=sys.stderr)
            return 3
        _say(held, "held by workers that are gone")
        _say(drain.waiting(), "waiting for their time")
        _say(drain.aside(), "set aside by gates (all are open now)")
        drain.idle()
        left = drain.left()
        for sentence in left:
            print(sentence, file=sys.stderr)
        return 1 if left else 0


def _say(moved: Counter[str], what: str) -> None:
    print(f"{moved.total()} messages that were {what} are in their queues now")
    for key, count in sorted(moved.items()):
        print(f"  {key!r}: {count}")


if __name__ == "__main__":
    sys.exit(main())
