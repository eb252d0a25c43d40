"""What live parts promise: one snapshot for all who look, none when nobody does, and nothing that outlives its page."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from bridge.console import console_server
from bridge.console.asgi_app import build_application
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot, LiveSnapshots
from bridge.console.pages import plans_page
from bridge.console.status_cache import GOOD_FOR, SharedAnswer
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import plan_item_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.masking.letter_mask import NO_MASKS
from bridge.deadletters.model.bulk_plan import PlanItemState
from tests.processes import eventually
from tests.servers.process import free_port
from tests.web.signed_in_console import Person, desk_of, open_letters

STATIC = Path(__file__).parents[2] / "bridge/console/static"


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    database = Database(f"sqlite:///{tmp_path}/desk.db")
    database.migrate()
    made = Console(desk_of(database, monkeypatch), "bridge @ kafka")
    made.live = LiveSnapshots(every=0.1, lasts=30)
    yield made
    database.close()


@pytest.fixture
def streams() -> Iterator[list[HTTPConnection]]:
    """What is open still when the server ends."""
    found: list[HTTPConnection] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def port(console: Console, streams: list[HTTPConnection]) -> Iterator[int]:
    """Of a real server: Starlette's test client does not hang up."""
    found = free_port()
    config = uvicorn.Config(
        build_application(console),
        port=found,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=console_server.SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started, 20)
    yield found
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def ann(console: Console) -> Person:
    return Person(console, "ann", Role.OPERATOR)


def applying(console: Console, ann: Person, count: int = 3) -> str:
    """The name of a plan that is applied."""
    open_letters(console.desk.database, count)
    address = ann.post("/plans/new", what="replay", scope="filter").headers["location"]
    ann.post(f"{address}/apply", **ann.form(address, f"{address}/apply"), pace="all")
    return f"plan-{address.rpartition('/')[2]}"


def opened(port: int, ann: Person, of: str) -> tuple[HTTPConnection, HTTPResponse]:
    """A stream, and the connection that it comes by."""
    connection = HTTPConnection("localhost", port, timeout=20)
    connection.request("GET", f"/events?of={of}", headers={"cookie": ann.cookie, "x-forwarded-proto": "https"})
    return connection, connection.getresponse()


def event(answer: HTTPResponse) -> dict[str, Any]:
    """The next event."""
    while not (line := answer.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return found


def test_the_first_event_has_all_parts_and_the_others_what_has_changed(console, ann, port):
    connection, answer = opened(port, ann, applying(console, ann))
    assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
    first = event(answer)
    assert {"p-state", "p-sums", "p-left", "p-trail"} <= set(first["parts"])
    assert (first["over"], "leaves 3 letters" in first["parts"]["p-left"]) == (False, True)
    assert event(answer)["parts"].keys() <= {"p-since"}
    with console.desk.database.writing() as db:
        plan_item_rows.claim_items(db, 1, {1: None}, 1)
        plan_item_rows.end_items(db, 1, {1: ""}, PlanItemState.DONE, 2)
    eventually(lambda: "leaves 2 letters" in event(answer)["parts"].get("p-left", ""), 10)
    connection.close()


def test_a_plan_that_has_ended_says_that_nothing_more_comes(console, ann, port):
    name = applying(console, ann)
    console.desk.plans.stop(1, "bob", "<b>no")
    connection, answer = opened(port, ann, name)
    said = event(answer)
    assert (said["over"], said["act"][:7]) == (True, "stopped")
    assert "&lt;b&gt;no" in said["parts"]["p-waits"]
    connection.close()


def test_nobody_looks_once_the_browser_has_gone_and_a_server_ends_with_streams_open(console, ann, streams, port):
    name = applying(console, ann)
    (first, answer), (second, other) = opened(port, ann, name), opened(port, ann, name)
    streams.append(second)
    event(answer)
    eventually(lambda: console.live.watched == {name: 2}, 10)
    answer.close()
    first.close()
    eventually(lambda: console.live.watched == {name: 1}, 10)
    # The server's end, in its fixture, is with this one open.
    assert event(other)


def test_a_stream_needs_somebody_who_is_signed_in_and_something_to_look_at(console, ann, port):
    for of, status in (("plan-77", 404), ("plan-x", 404), ("nothing", 404), ("", 404)):
        connection, answer = opened(port, ann, of)
        assert answer.status == status
        connection.close()
    connection = HTTPConnection("localhost", port, timeout=20)
    connection.request("GET", "/events?of=plan-1")
    assert connection.getresponse().status == 303
    connection.close()


def looked(
    live: LiveSnapshots, make: Callable[[], LiveSnapshot], people: int, events: int, **rest: Any
) -> list[list[str]]:
    """What so many people see of one thing."""

    async def one() -> list[str]:
        found = []
        async for said in live.stream("plan-1", make, **rest):
            found.append(said)
            if len(found) == events:
                break
        return found

    async def all_of_them() -> list[list[str]]:
        return list(await asyncio.gather(*(one() for _ in range(people))))

    return asyncio.run(all_of_them())


def test_fifty_who_look_cost_one_snapshot_at_a_time():
    made = []

    def make() -> LiveSnapshot:
        made.append(1)
        return LiveSnapshot("a", False, {"p": str(len(made))})

    live = LiveSnapshots(every=0.2)
    found = looked(live, make, 50, 5)
    assert all(len(each) == 5 for each in found)
    assert len(made) <= 7
    assert live.watched == {}


def test_a_snapshot_that_takes_long_is_made_seldom():
    now = [0.0]
    live = LiveSnapshots(every=0.01, clock=lambda: now[0], lasts=1e9)
    made = []

    def make() -> LiveSnapshot:
        made.append(1)
        now[0] += 10
        return LiveSnapshot("a", False, {})

    looked(live, make, 1, 20)
    assert len(made) == 1


def test_each_event_says_how_old_its_figures_are_however_new_it_is_itself():
    live = LiveSnapshots(every=0.01, clock=lambda: 100.0, lasts=1e9)
    (found,) = looked(live, lambda: LiveSnapshot("a", False, {}, read=83.5), 1, 1)
    assert json.loads(found[0].removeprefix("data: "))["age"] == 16.5
    (found,) = looked(live, lambda: LiveSnapshot("a", False, {}), 1, 1)
    assert json.loads(found[0].removeprefix("data: "))["age"] == 0


def test_a_stream_ends_after_a_while_so_that_who_was_signed_out_sees_no_more():
    live = LiveSnapshots(every=0.01, lasts=0.1)
    (found,) = looked(live, lambda: LiveSnapshot("a", False, {}), 1, 1_000_000)
    assert 1 <= len(found) < 20


def test_a_stream_ends_with_the_session_of_who_looks():
    signed_in = iter([True, True, False])
    live = LiveSnapshots(every=0.01, lasts=20, asked=0.01)
    (found,) = looked(live, lambda: LiveSnapshot("a", False, {}), 1, 1_000_000, goes_on=lambda: next(signed_in))
    assert 1 <= len(found) < 20


def test_a_session_that_was_ended_ends_its_streams(console, ann, port):
    console.live.asked = 0.1
    connection, answer = opened(port, ann, applying(console, ann))
    event(answer)
    console.sessions.end(ann.cookie.partition("=")[2])
    began = time.monotonic()
    answer.read()
    assert time.monotonic() - began < 10
    connection.close()


def test_without_javascript_a_plan_under_way_loads_itself_anew(console, ann):
    name = applying(console, ann)
    page = ann.get(f"/plans/{name.partition('-')[2]}").text
    assert re.search(r'<noscript><meta http-equiv="refresh" content="30"></noscript>', page)
    assert 'data-live="plan-1"' in page
    assert "live.js" in page
    console.desk.plans.stop(1, "bob")
    page = ann.get("/plans/1").text
    assert "http-equiv" not in page
    assert "live.js" not in page


def test_the_script_is_small_and_its_places_are_those_of_the_page(console, ann):
    assert len((STATIC / "live.js").read_bytes()) < 6_000
    name = applying(console, ann)
    page = ann.get("/plans/1").text
    parts = plans_page.watch_plan(console, name.partition("-")[2], NO_MASKS)().parts
    places = {place for place, html in parts.items() if html}
    assert [place for place in places if page.count(f'id="{place}"') != 1] == []
    assert not any("<form" in html or "<input" in html or "<button" in html for html in parts.values())


def test_what_several_pages_show_alike_is_asked_once_while_it_holds():
    now, asked = [0.0], []
    shared: SharedAnswer[int] = SharedAnswer(clock=lambda: now[0])

    def ask() -> int:
        asked.append(now[0])
        return len(asked)

    assert [shared.find_recent(ask, lambda found: True) for _ in range(6)] == [1] * 6
    # It is known to be of the past.
    assert shared.find_recent(ask, lambda found: found > 1) == 2
    assert shared.find_recent(ask, lambda found: found > 1) == 2
    now[0] += GOOD_FOR
    assert shared.find_recent(ask, lambda found: True) == 3
