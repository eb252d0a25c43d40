"""`bridge deadletters shadow`: what would become of letters is counted, and no handler has an effect outside."""

import importlib
import json
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.editing.system_call_filter import is_sealed_by_kernel
from tasks.declaration import app_setup
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tests.desk.commands import Commands
from tests.desk.letters import letter

#: The letters' own database does not matter here.
pytestmark = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)

HANDLERS = """
import ctypes
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

from sqlalchemy import create_engine, text

from bridge.errors import AlreadySettled
from tasks import DeadLetter, Message, handler

HERE = Path(__file__).parent
DATABASE = HERE / "orders.db"
engine = create_engine(f"sqlite:///{DATABASE}")
log_file = open(HERE / "log.txt", "a")
kept_open = open(HERE / "kept-open.txt", "a")
logger = logging.getLogger(__name__)
logger.addHandler(logging.StreamHandler(log_file))


@handler("orders")
def judge(order):
    if order["id"] % 10 == 0:
        raise ValueError(f"order {order['id']} is not payable")


@handler("orders")
def other_fault(order):
    return order["missing"]


@handler("orders")
def publishes(order, message: Message):
    message.publish("receipts", order)
    message.publish("receipts", order)
    message.publish("mails", order)
    publishes.app.send_task("mails.send", [order["id"]])
    if order["id"] == 3:
        raise ValueError("after it has published")


@handler("orders")
def refuses(order):
    raise DeadLetter("never")


@handler("orders")
def settled(order):
    raise AlreadySettled


@handler("orders")
def sqlite_commits(order):
    with sqlite3.connect(DATABASE) as connection:
        connection.execute("INSERT INTO paid VALUES (?)", (order["id"],))
    connection.close()
    with sqlite3.connect(DATABASE) as connection:
        found = connection.execute("SELECT id FROM paid ORDER BY id").fetchall()
    assert found == [(0,), (order["id"],)], found


@handler("orders")
def sqlalchemy_commits(order):
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM paid")).scalar_one() == 2


@handler("orders")
def new_database(order):
    with sqlite3.connect(HERE / "new.db") as connection:
        connection.execute("CREATE TABLE a (b)")


@handler("orders")
def attaches(order):
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{HERE / 'attached.db'}' AS more")
        connection.execute("CREATE TABLE more.a (b)")


@handler("orders")
def connects(order):
    connection = socket.create_connection(("127.0.0.1", order["port"]), 1)
    connection.sendall(b"a payment")


@handler("orders")
def connects_and_swallows(order):
    try:
        socket.create_connection(("127.0.0.1", order["port"]), 1).sendall(b"a payment")
    except OSError:
        pass


@handler("orders")
async def connects_async(order):
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", order["port"])
    writer.write(b"a payment")
    await writer.drain()


@handler("orders")
def sends_udp(order):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"a payment", ("127.0.0.1", order["port"]))


@handler("orders")
def sends_udp_in_c(order):
    library = ctypes.CDLL(None)
    number = library.socket(2, 2, 0)
    address = b"\\x02\\x00" + order["port"].to_bytes(2, "big") + b"\\x7f\\x00\\x00\\x01" + bytes(8)
    library.sendto(number, b"a payment", 9, 0, address, 16)


@handler("orders")
def writes_file(order):
    (HERE / "written.txt").write_text("paid")


@handler("orders")
def writes_in_c(order):
    library = ctypes.CDLL(None)
    library.creat(str(HERE / "written.txt").encode(), 0o644)


@handler("orders")
def writes_to_open_file(order):
    kept_open.write("paid")
    kept_open.flush()
    logger.error("paid")


@handler("orders")
def takes_its_number(order):
    # A connection of its own must not get the number of a file that objects made at import write to.
    with open(__file__) as file:
        kept_open.write("paid")
        kept_open.flush()
        assert file.fileno() != kept_open.fileno()


@handler("orders")
def renames(order):
    os.rename(HERE / "kept.txt", HERE / "gone.txt")


@handler("orders")
def starts_program(order):
    subprocess.run(["touch", str(HERE / "written.txt")])


@handler("orders")
def kills_parent(order):
    os.kill(os.getppid(), signal.SIGTERM)


@handler("orders")
def hangs(order):
    while True:
        time.sleep(0.01)


@handler("orders")
def crashes(order):
    os.abort()


@handler("orders")
def exits(order):
    os._exit(3)


@handler("orders")
def exits_after_refusal(order):
    try:
        (HERE / "written.txt").write_text("paid")
    except OSError:
        os._exit(0)


@handler("orders")
def eats_memory(order):
    return bytes(4 << 30)


@handler("orders", bulk=10)
def in_lists(orders):
    return [10 / order["id"] for order in orders]
"""


class ShadowShop:
    """Dead letters of the handlers above, and the folder in which those would leave something."""

    def __init__(self, folder: Path, database: Database, commands: Commands) -> None:
        self.folder, self.package, self._database, self._commands = folder, folder / "shadow_shop", database, commands
        self._count = 0

    def record(self, handler: str, *values: Any, **other: Any) -> None:
        """Record a dead letter of a handler for each value."""
        name = f"shadow_shop.handlers.{handler}"
        made = []
        for value in values:
            self._count += 1
            made.append(letter(self._count, handler=name, value=json.dumps(value).encode(), **other))
        with self._database.writing() as connection:
            LetterWriter(connection, IdCache(), 5_000_000, 1_000_000).record(made)

    def shadow(self, *words: str | int, code: int | None = None) -> dict[str, Any]:
        """Run the command, and return its result."""
        before = self.snapshot()
        ended = self._commands.run("shadow", "--json", *words)
        assert self.snapshot() == before
        assert code is None or ended.exit_code == code, ended.output
        return json.loads(ended.stdout)  # type: ignore[no-any-return]

    def judge(self, handler: str, *values: Any) -> dict[str, Any]:
        self.record(handler, *(values or ({"id": 1},)))
        return self.shadow("--handler", f"shadow_shop.handlers.{handler}", "--letter-seconds", 2)

    def run(self, *words: str | int) -> str:
        return self._commands.run("shadow", *words).output

    def snapshot(self) -> dict[str, bytes]:
        """Return all files that handlers could change."""
        return {
            str(file): file.read_bytes()
            for file in sorted(self.package.rglob("*"))
            if file.suffix != ".pyc" and file.is_file()
        }


@pytest.fixture
def shop(
    tmp_path: Path, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ShadowShop]:
    package = tmp_path / "shadow_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "handlers.py").write_text(HANDLERS)
    (package / "kept.txt").write_text("as before")
    with sqlite3.connect(package / "orders.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE paid (id)")
        connection.execute("INSERT INTO paid VALUES (0)")
    connection.close()
    app = Celery("shadow", broker="redis://127.0.0.1:1", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)
    monkeypatch.setattr(app_setup, "_used", [app])
    monkeypatch.syspath_prepend(tmp_path)
    handlers = importlib.import_module("shadow_shop.handlers")
    yield ShadowShop(tmp_path, database, Commands(monkeypatch, database_url, app))
    app.close()
    handlers.engine.dispose()
    handlers.log_file.close()
    handlers.kept_open.close()
    for name in [name for name in sys.modules if name.split(".")[0] == "shadow_shop"]:
        del sys.modules[name]


@pytest.fixture
def bank() -> Iterator[tuple[int, list[bytes]]]:
    """A service on this machine, and what it was sent, by TCP and UDP."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                received.append(b"a connection")
                received.append(connection.recv(100))
                connection.close()

        def receive() -> None:
            while (data := datagrams.recv(100)) != b"end":
                received.append(data)

        threads = [threading.Thread(target=serve, daemon=True), threading.Thread(target=receive, daemon=True)]
        for thread in threads:
            thread.start()
        yield port, received
        server.shutdown(socket.SHUT_RDWR)
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"end", ("127.0.0.1", port))
        for thread in threads:
            thread.join()


def test_letters_that_would_pass_and_fail_are_counted_by_how_they_fail(shop: ShadowShop):
    shop.record("judge", *({"id": number} for number in range(1, 31)))
    shop.record("other_fault", {"id": 1}, {"id": 2})
    found = shop.shadow(code=3)
    assert (found["letters"], found["passed"], found["failed"], found["unknown"]) == (32, 27, 5, 0)
    first, second = found["failures"]
    assert (first["count"], first["error_class"], first["handler"]) == (
        3,
        "ValueError",
        "shadow_shop.handlers.judge",
    )
    assert first["where"].endswith("handlers.py:judge")
    assert sorted(first["letters"]) == [10, 20, 30]
    assert (second["count"], second["error_class"]) == (2, "KeyError")


def test_all_that_pass_end_with_0_and_letters_that_are_not_open_do_not_run(shop: ShadowShop):
    shop.record("judge", {"id": 1}, {"id": 2}, {"id": 10})
    assert shop._commands.run("archive", 3, "--yes").exit_code == 0
    assert shop.shadow(code=0)["passed"] == 2


def test_a_shadow_is_bounded_by_letters_and_says_so(shop: ShadowShop):
    shop.record("judge", *({"id": number} for number in range(1, 9)))
    said = shop.run("--limit", 3)
    assert "3 letters ran of 8 open letters, the newest" in said
    assert "3 would pass" in said


def test_a_shadow_is_bounded_in_time_and_says_so(shop: ShadowShop):
    shop.record("hangs", *({"id": number} for number in range(1, 9)))
    found = shop.shadow("--seconds", 1, "--letter-seconds", "0.6")
    assert found["unknown"] == 2
    assert any("It ended after 1 s" in limit for limit in found["limits"])


def test_messages_and_tasks_are_counted_and_not_sent(shop: ShadowShop):
    found = shop.judge("publishes", {"id": 1}, {"id": 2}, {"id": 3})
    assert (found["passed"], found["failed"]) == (2, 1)
    assert found["published"] == {"receipts": 4, "mails": 2}
    assert found["tasks"] == {"mails.send": 2}


@pytest.mark.parametrize("handler", ["sqlite_commits", "sqlalchemy_commits", "new_database"])
def test_a_sqlite_database_is_a_copy_that_each_letter_has_anew(shop: ShadowShop, handler: str):
    found = shop.judge(handler, {"id": 1}, {"id": 2})
    assert (found["passed"], found["failed"], found["unknown"]) == (2, 0, 0), found
    assert len(found["copied"]) == 1


@pytest.mark.parametrize("handler", ["connects", "connects_and_swallows", "connects_async"])
def test_a_refused_connection_is_not_judged_and_named(shop: ShadowShop, handler: str, bank: tuple[int, list[bytes]]):
    port, received = bank
    found = shop.judge(handler, {"port": port})
    assert (found["passed"], found["failed"], found["unknown"]) == (0, 0, 1)
    assert f"a connection to 127.0.0.1:{port}" in found["unknown_reasons"][0]["why"]
    assert received == []


OUTSIDE = [
    "sends_udp",
    "writes_file",
    "renames",
    "starts_program",
    "kills_parent",
    "exits_after_refusal",
    "eats_memory",
    "hangs",
]
IN_C = ["sends_udp_in_c", "writes_in_c", "attaches"]
IN_KERNEL = [
    pytest.param(handler, marks=pytest.mark.skipif(not is_sealed_by_kernel(), reason="the kernel's filter is Linux's"))
    for handler in IN_C
]


@pytest.mark.parametrize("handler", [*OUTSIDE, *IN_KERNEL])
def test_what_reaches_outside_has_no_effect_and_is_not_judged(
    shop: ShadowShop, handler: str, bank: tuple[int, list[bytes]]
):
    port, received = bank
    found = shop.judge(handler, {"port": port})
    assert (found["passed"], found["failed"], found["unknown"]) == (0, 0, 1), found
    assert found["unknown_reasons"][0]["why"]
    assert received == []


@pytest.mark.parametrize(("handler", "message"), [("crashes", "signal SIGABRT"), ("exits", "exit code 3")])
def test_a_process_that_dies_would_fail(shop: ShadowShop, handler: str, message: str):
    found = shop.judge(handler)
    assert (found["failed"], found["unknown"]) == (1, 0)
    assert message in found["failures"][0]["message"]


@pytest.mark.parametrize("handler", ["writes_to_open_file", "takes_its_number", "settled", "in_lists"])
def test_a_file_that_was_open_keeps_what_it_has_and_the_letter_passes(shop: ShadowShop, handler: str):
    assert shop.judge(handler)["passed"] == 1


def test_a_dead_letter_that_the_handler_asks_for_is_a_failure(shop: ShadowShop):
    assert shop.judge("refuses")["failures"][0]["error_class"].endswith("DeadLetter")


def test_a_handler_that_is_not_here_is_not_judged(shop: ShadowShop):
    found = shop.judge("gone")
    assert found["unknown_reasons"][0]["why"].startswith("shadow_shop.handlers.gone is no handler of this app")


def test_the_result_is_noted_on_the_group_without_what_letters_contain(shop: ShadowShop):
    shop.record("judge", {"id": 1}, {"id": 10})
    shop.shadow("--group", 1)
    noted = shop._commands.given("show", 1)["trail"]
    assert [(each["what"], each["said"]) for each in noted if each["what"] == "shadow"] == [
        ("shadow", "1 of 2 letters would pass, 1 would fail (1 ValueError at shadow_shop/handlers.py:judge)")
    ]


def test_a_plans_letters_run_before_it_is_applied(shop: ShadowShop):
    shop.record("judge", {"id": 1}, {"id": 10}, {"id": 2})
    planned = shop._commands.run("replay", 1, 2, "--plan", "--json")
    assert planned.exit_code == 0, planned.output
    found = shop.shadow("--plan", json.loads(planned.stdout)["plan"])
    assert (found["passed"], found["failed"]) == (1, 1)


def test_the_surroundings_of_the_parent_stay_as_they_were(shop: ShadowShop):
    before = (sqlite3.connect, sqlite3.dbapi2.connect, Celery.send_task)
    shop.judge("sqlite_commits")
    assert (sqlite3.connect, sqlite3.dbapi2.connect, Celery.send_task) == before
