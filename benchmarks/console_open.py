"""Fifty consoles left open: what their live parts cost who serves them, with Kafka and Redis, and without."""

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from benchmarks.console_desk import Lies, Served, console, settle, use
from benchmarks.deadletters_million import fill
from benchmarks.stack import Stack, stack
from bridge.deadletters.db.database import Database

LETTERS: Final = int(os.environ.get("LETTERS", "1000000"))
CONSOLES: Final = 50
#: Seconds: until all have come, and of what is measured, in which each stream ends once and is asked for anew.
BEGINS: Final = 10.0
LASTS: Final = 60.0
#: Of a core.
WANTED: Final = 0.05


def main() -> None:
    """On SQLite, as a console is that nobody has set up."""
    with tempfile.TemporaryDirectory() as folder, stack() as on:
        url = f"sqlite:///{folder}/letters.db"
        database = Database(url)
        fill(database, LETTERS, int(time.time() * 1000))
        lies = use(database)
        settle(database)
        with console(on, url) as served:
            measure(on, served, lies)
        database.close()


def measure(on: Stack, served: Served, lies: Lies) -> None:
    """Nobody; fifty who look at the overview; fifty who look at this and that; the same without Kafka and Redis."""
    overview = ["overview"] * CONSOLES
    mixed = [*overview[:40], *[f"plan-{lies.applying}"] * 5, "topic-topic0", "topic-topic1", "topic-topic2"]
    mixed += ["handler-shop.orders.handlers.on_0", "handler-shop.mails.handlers.on_1"]
    _say("nobody looks", asyncio.run(_cost(served, [])))
    _say("50 at the overview", asyncio.run(_cost(served, overview)))
    _say("40 at the overview, 5 at a plan, 5 at topics and handlers", asyncio.run(_cost(served, mixed)))
    on.kafka.freeze()
    on.redis_server.freeze()
    try:
        _say("50 at the overview, Kafka and Redis silent", asyncio.run(_cost(served, overview)))
    finally:
        on.redis_server.thaw()
        on.kafka.thaw()


async def _cost(served: Served, names: list[str]) -> tuple[float, Counter[str]]:
    """Of a core, and what came: streams begun, and their bytes."""
    came: Counter[str] = Counter()
    looking = [asyncio.create_task(_look(served, number, name, came)) for number, name in enumerate(names)]
    await asyncio.sleep(BEGINS)
    came.clear()
    began, cpu = time.monotonic(), _seconds_of(served.pid)
    await asyncio.sleep(LASTS)
    cost = (_seconds_of(served.pid) - cpu) / (time.monotonic() - began)
    for each in looking:
        each.cancel()
    await asyncio.gather(*looking, return_exceptions=True)
    return cost, came


async def _look(served: Served, number: int, name: str, came: Counter[str]) -> None:
    """As a page does: a stream, and when it ends, another one after a second or so."""
    host = urlsplit(served.address)
    cookie = "=".join(served.cookies[number % len(served.cookies)])
    lines = (f"GET /events?of={name} HTTP/1.1", f"Host: {host.netloc}", f"Cookie: {cookie}")
    asked = "\r\n".join((*lines, "Accept-Encoding: gzip, br", "Sec-Fetch-Site: same-origin", "\r\n"))
    await asyncio.sleep(random.random() * BEGINS / 2)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host.hostname, host.port, limit=2**20)
            try:
                writer.write(asked.encode())
                status = await reader.readline()
                came[f"streams answered {status.split()[1].decode() if status else 'nothing'}"] += 1
                while some := await reader.read(2**16):
                    came["bytes"] += len(some)
                    # The end of a chunked answer; its connection stays open.
                    if some.endswith(b"0\r\n\r\n"):
                        break
            finally:
                writer.close()
        await asyncio.sleep(0.5 + random.random())


def _say(what: str, found: tuple[float, Counter[str]]) -> None:
    cost, came = found
    missed = f"; WANTED {WANTED:.0%}" if cost > WANTED else ""
    print(f"{what}: {cost:.1%} of a core; {dict(came)}{missed}", flush=True)


def _seconds_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
