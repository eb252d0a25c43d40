"""Every page of the console with a million dead letters, as a browser has it: from asking until all of it is loaded."""

import os
import tempfile
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.console_desk import TRACED, Lies, Served, console, settle, use
from benchmarks.deadletters_million import fill
from benchmarks.stack import stack
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.sql import read_clock
from tests.browser.chromium import chromium
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LETTERS: Final = int(os.environ.get("LETTERS", "1000000"))
TIMES: Final = int(os.environ.get("TIMES", "40"))
#: Ms, at p95.
WANTED: Final = {"postgresql": 150, "sqlite": 500}
CHARGE: Final = "shop.orders.handlers.on_0"
#: Ms until what was asked for is there; the first byte, which is the console's own time; and bytes of the page alone.
TIMED: Final = """() => { const [it] = performance.getEntriesByType("navigation");
  return [it.loadEventEnd, it.responseStart - it.requestStart, it.transferSize]; }"""
LOADED: Final = "performance.getEntriesByType('navigation')[0].loadEventEnd > 0"


class Took(NamedTuple):
    """What a page took, ms each time, and its bytes."""

    load: list[float]
    server: list[float]
    size: int


def addresses(lies: Lies) -> list[str]:
    """Of every page that shows something of the desk, as people ask for it."""
    traced = LETTERS // 2 // TRACED * TRACED
    day = "2026-10-01"
    return [
        "/",
        "/topics/topic0",
        "/topics/topic0/halt",
        f"/handlers/{CHARGE}",
        f"/handlers/{CHARGE}/policy",
        "/find?q=topic3-5-500005",
        "/find?q=customer-77777",
        "/find?q=customer-1",
        "/audit",
        "/groups",
        "/groups?show=all",
        f"/groups?handler={CHARGE}",
        "/groups/1",
        "/groups/1/fixed",
        "/letters",
        "/letters?status=resolved&rows=100",
        f"/letters?handler={CHARGE}",
        "/letters?group=1",
        "/letters?topic=topic3&reason=permanent",
        "/letters?text=declined+bank+42",
        "/letters?text=nowhere",
        "/letters?key=customer-1",
        f"/letters?since={day}&until=2026-10-02",
        f"/letters/{traced}",
        f"/letters/{traced}?status=open&group=1",
        f"/letters/{traced}?elsewhere=1",
        f"/letters/{traced}/edit",
        "/plans",
        f"/plans/{lies.applying}",
        f"/plans/{lies.planned}",
        f"/plans/{lies.done}",
        "/account",
        "/admin/users",
        "/admin/users/1",
        "/admin/webhooks",
        "/sign-in",
    ]


def main() -> None:
    """Both databases, one after the other, with a Kafka, a Redis, a bridge and a worker beside the console."""
    with tempfile.TemporaryDirectory() as folder:
        _pages(f"sqlite:///{folder}/letters.db")
    with PostgresServer() as server:
        _pages(server.url)


def _pages(url: str) -> None:
    database = Database(url)
    with database.reading() as connection:
        at = read_clock(connection)
    fill(database, LETTERS, at)
    lies = use(database)
    settle(database)
    with stack() as on, console(on, url) as served:
        measure(database.dialect, served, lies)
    database.close()


def measure(dialect: str, served: Served, lies: Lies) -> None:
    """What each page takes a browser of somebody who has been here before; marked where that is too long."""
    wanted, every = WANTED[dialect], []
    print(f"-- {dialect}, {LETTERS:,} letters, {TIMES} loads a page, wanted p95 {wanted} ms", flush=True)
    with chromium() as browser:
        page = _opened(browser, served)
        for address in addresses(lies):
            took = _took(page, address)
            every += took.load
            load = f"load p50 {median(took.load):>6.0f} p95 {_p95(took.load):>6.0f} ms"
            server = f"server p50 {median(took.server):>6.0f} p95 {_p95(took.server):>6.0f} ms"
            missed = " MISSED" if _p95(took.load) > wanted else ""
            print(f"{address:<52} {load}  {server}  {took.size:>6,} bytes{missed}", flush=True)
    print(f"all pages together: p50 {median(every):.0f} ms, p95 {_p95(every):.0f} ms", flush=True)


def _opened(browser: "Browser", served: Served) -> "Page":
    context = browser.new_context(base_url=served.address)
    name, value = served.cookies[0]
    context.add_cookies([{"name": name, "value": value, "url": served.address}])
    return context.new_page()


def _took(page: "Page", address: str) -> Took:
    took = Took([], [], 0)
    for number in range(TIMES + 1):
        answer = page.goto(address)
        assert answer is not None, address
        assert answer.status < 400 or address.startswith("/find"), f"{address}: {answer.status}"
        page.wait_for_function(LOADED)
        load, server, size = page.evaluate(TIMED)
        # The first one is the database's, which reads what nobody has asked for yet.
        if number:
            took.load.append(load)
            took.server.append(server)
        took = took._replace(size=int(size))
    return took


def _p95(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.95)]


if __name__ == "__main__":
    main()
