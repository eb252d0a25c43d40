"""Dead letters into the desk's database by a real recorder, at its defaults: values of 1 kB, tracebacks as they are.

Beside it, in the same run, the recorder that everybody writes first (benchmarks/plain_recording.py).
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import func, select

from benchmarks.stack import PARTITIONS, Stack, stack
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.table_definitions import letters
from bridge.formats import dead_letter_record
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.record_headers import RecordHeaders
from bridge.kafka.clients import Producer
from tests.servers.postgres import PostgresServer

COUNT = int(os.environ.get("LETTERS", "100000"))
WARM = 2_000
#: What it is to reach with either, letters a second.
WANTED = 5_000
WHICH = os.environ.get("RECORDING", "sqlite postgresql").split()
#: Handlers and kinds of failure.
HANDLERS = ("orders.handlers.charge", "orders.handlers.notify", "orders.handlers.ship")
ERRORS = ("orders.errors.CardDeclined", "builtins.ConnectionError", "builtins.KeyError", "pydantic.ValidationError")
TOPIC = "plain"


def main() -> None:
    """Each database, empty yet, on a Kafka of its own."""
    for name in WHICH:
        with stack() as on, database(on, name) as url:
            on.kafka.create_topics(TOPIC, f"{TOPIC}.dlq", partitions=PARTITIONS)
            bury(on, 0, WARM + COUNT)
            rate, plain = measure(on, name, url), measure_plain(on, url)
            print(f"{name}: {rate / plain:.2f} of what rows without headers, groups or words come to", flush=True)


@contextmanager
def database(on: Stack, name: str) -> Iterator[str]:
    """The URL of an empty one; PostgreSQL as it is after its installation, but for its port."""
    if name == "sqlite":
        yield f"sqlite:///{on.folder}/letters.db"
        return
    with PostgresServer() as server:
        yield server.url


def measure(on: Stack, name: str, url: str) -> float:
    """How many letters a second go in, from the first second in which there are some to the last."""
    environment = {"DEADLETTERS_DATABASE_URL": url, "BRIDGE_GROUP": "measured", "TOPIC": TOPIC}
    with on.process("bridge", "deadletters", "record", **environment) as started:
        counted = counter(url)
        until(lambda: counted() >= WARM)
        begun, first, cpu = time.monotonic(), counted(), seconds_of(started)
        until(lambda: counted() >= WARM + COUNT)
        took = time.monotonic() - begun
        spent = 1e6 * (seconds_of(started) - cpu) / (WARM + COUNT - first)
    rate = (WARM + COUNT - first) / took
    verdict = "" if rate >= WANTED else f"; WANTED {WANTED:,}/s"
    print(f"recording into {name}: {rate:,.0f}/s, {spent:.0f} µs of the recorder's CPU a letter{verdict}", flush=True)
    return rate


def measure_plain(on: Stack, url: str) -> float:
    """The same of records as they are, into a table of their own; its start is in it, which is short."""
    begun = time.monotonic()
    given = (f"{TOPIC}.dlq", str(WARM + COUNT))
    with on.process("benchmarks.plain_recording", *given, DEADLETTERS_DATABASE_URL=url) as started:
        assert started.wait(300) == 0
    return (WARM + COUNT) / (time.monotonic() - begun)


def counter(url: str) -> Callable[[], int]:
    """Asks how many letters there are; none before there are tables. By their ids: a count would read them all."""
    opened = Database(url)

    def count() -> int:
        try:
            with opened.reading() as connection:
                return connection.execute(select(func.max(letters.c.id))).scalar() or 0
        except Exception:
            return 0

    return count


def bury(on: Stack, start: int, stop: int) -> None:
    """Write dead letters of these offsets, as workers do."""
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 50})
    for offset in range(start, stop):
        while True:
            try:
                producer.produce(f"{TOPIC}.dlq", value(offset), b"%d" % (offset % 1000), headers=headers(offset))
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(60)
    assert left == 0, f"{left} letters were not written"


def headers(offset: int) -> RecordHeaders:
    """Of a delivery that died after 13 runs; each letter's message is its own."""
    handler, error, number = HANDLERS[offset % 3], ERRORS[offset % 4], offset
    message = f"order {number} for customer {number * 7919 % 100_000}: declined"
    module = handler.rpartition(".")[0].replace(".", "/")
    frames = [
        ("/usr/lib/python3.11/site-packages/tasks/execution/handler_attempt.py", "run"),
        (f"/srv/app/{module}.py", "charge"),
    ]
    frames += [(f"/srv/app/orders/clients/bank{depth}.py", f"step_{depth}") for depth in range(offset % 4 + 4)]
    frames += [(f"/srv/venv/lib/python3.11/site-packages/httpx/_{depth}.py", "send") for depth in range(6)]
    lines = "".join(f'  File "{path}", line 42, in {name}\n    return self._next(request)\n' for path, name in frames)
    text = f"Traceback (most recent call last):\n{lines}{error}: {message}\n"
    delivery = Delivery(
        Message(
            TOPIC, offset % 12, offset, headers=(("trace", b"%032d" % offset), ("source", b"web")), timestamp=1_000
        ),
        handler,
        runs=13,
        attempts=Attempts(13),
        first_failed_at=time.time_ns() // 1_000_000 - 1_200_000,
    )
    failure = Failure(error, message, text, time.time_ns() // 1_000_000)
    return dead_letter_record.dead_letter_headers(delivery, Dead("exhausted", failure, "2026.11.1"), "measured")


def value(offset: int) -> bytes:
    """An order of about 1 kB."""
    lines = [
        {"sku": f"sku-{(offset * 31 + line) % 5_000}", "amount": line + 1, "price": f"{line * 7 + 3}.99", "tax": "19%"}
        for line in range(12)
    ]
    customer = {"id": offset * 7919 % 100_000, "name": "A. Customer", "street": "Long Street 1", "city": "Anywhere"}
    return json.dumps({"order": offset, "customer": customer, "currency": "EUR", "lines": lines}).encode()


def seconds_of(process: "subprocess.Popen[bytes]") -> float:
    """Its CPU time so far."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], bool], within: float = 300) -> None:
    """Wait for it."""
    give_up = time.monotonic() + within
    while not condition():
        assert time.monotonic() < give_up, "too slow"
        time.sleep(0.02)


if __name__ == "__main__":
    main()
