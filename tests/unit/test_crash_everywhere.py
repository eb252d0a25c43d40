"""`crash_everywhere`: handlers with known faults are found, and right ones are left alone; each crash is a real one."""

import json
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from celery import Celery
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bridge.errors import AlreadySettled
from tasks import DeadLetter, Message, Messages, RetryLater
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.testing import CrashReport, FakeService, crash_everywhere
from tests.servers.postgres import PostgresServer

ORDER = {"id": 1, "card": "4242", "amount": 5}
TABLES = ("payments", "mails", "seen", "bridge_settled", "bridge_outbox")


class OutsideHttp(BaseHTTPRequestHandler):
    """A service over HTTP, which acts once for each idempotency key."""

    acted: list[str]

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length).decode()
        if len(body) < length:
            # Whoever asked died between the head and the body.
            return
        key = self.headers["idempotency-key"]
        if key is None or key not in self.server.keys:  # type: ignore[attr-defined]
            self.server.acted.append(body)  # type: ignore[attr-defined]
            self.server.keys.add(key)  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Shop:
    """The world of the handlers: a database in a file, a log file, three services, one of them over HTTP."""

    def __init__(self, folder: Path, declare: Callable[..., Any], url: str = "") -> None:
        self.handler = declare
        self.path, self.file = folder / "shop.db", folder / "log.txt"
        self.engine = create_engine(url or f"sqlite:///{self.path}")
        if not url:
            # The processes are killed, and not the machine.
            event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        self.bank = FakeService("bank", "receipt")
        self.keyed_bank = FakeService("keyed bank", "receipt", key=lambda order, key: key)
        self.async_bank = FakeService("async bank", awaited=True)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), OutsideHttp)
        self.http.acted, self.http.keys = [], set()  # type: ignore[attr-defined]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def post(self, body: str, **headers: str) -> None:
        port = self.http.server_port
        with urlopen(Request(f"http://127.0.0.1:{port}/", body.encode(), headers)) as answer:
            answer.read()

    def reset(self) -> None:
        with self.engine.begin() as connection:
            for table in TABLES:
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            connection.execute(text("CREATE TABLE payments (id INTEGER, amount INTEGER)"))
            connection.execute(text("CREATE TABLE mails (id INTEGER)"))
            connection.execute(text("CREATE TABLE seen (id INTEGER PRIMARY KEY)"))
            connection.execute(text("INSERT INTO payments VALUES (0, 100)"))
        self.http.acted.clear()  # type: ignore[attr-defined]
        self.http.keys.clear()  # type: ignore[attr-defined]
        self.file.write_text("")

    def effects(self) -> dict[str, Any]:
        with self.engine.connect() as connection:
            rows = {
                "payments": [tuple(row) for row in connection.execute(text("SELECT * FROM payments"))],
                "mails": [tuple(row) for row in connection.execute(text("SELECT * FROM mails"))],
            }
        return {**rows, "http": [*self.http.acted], "file": self.file.read_text().splitlines()}  # type: ignore[attr-defined]

    def crash(self, handler: Any, value: Any = ORDER) -> CrashReport:
        services = (self.bank, self.keyed_bank, self.async_bank)
        return crash_everywhere(handler, value, effects=self.effects, reset=self.reset, services=services)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()
        self.engine.dispose()

    def run(self, statement: str, **values: Any) -> None:
        """Run a statement in a transaction of its own."""
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)

    def count(self, statement: str, **values: Any) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text(statement), values).scalar() or 0)


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("crashes", set_as_current=False)
    made.conf.update(OWN_DEFAULTS)
    yield made
    made.close()


@pytest.fixture
def shop(tmp_path: Path, app: Celery) -> Iterator[Shop]:
    with closing(Shop(tmp_path, lambda **options: declare_handler(app, ("orders",), options))) as opened:
        yield opened


PAY = "INSERT INTO payments VALUES (:id, :amount)"
MAIL = "INSERT INTO mails VALUES (:id)"


def insert_without_mark(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        with Session(shop.engine) as session, session.begin():
            session.execute(text(PAY), {"id": order["id"], "amount": order["amount"]})

    return charge


def add_to_a_balance(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.run("UPDATE payments SET amount = amount - :amount WHERE id = 0", amount=order["amount"])

    return charge


def two_commits_and_the_mark_in_the_second(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        shop.run(PAY, id=1, amount=5)
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(MAIL), {"id": 1})

    return charge


def two_commits_and_the_mark_in_the_first(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
        shop.run(MAIL, id=1)

    return charge


def own_mark_before_the_work(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        if shop.count("SELECT count(*) FROM seen WHERE id = :id", id=order["id"]):
            return
        shop.run("INSERT INTO seen VALUES (:id)", id=order["id"])
        shop.run(PAY, id=1, amount=5)

    return charge


def own_mark_after_the_work(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        if shop.count("SELECT count(*) FROM seen WHERE id = :id", id=order["id"]):
            return
        shop.run(PAY, id=1, amount=5)
        shop.run("INSERT INTO seen VALUES (:id)", id=order["id"])

    return charge


def mark_in_memory(shop: Shop) -> Any:
    seen = set()

    @shop.handler()
    def charge(order: Any) -> None:
        if order["id"] not in seen:
            shop.run(PAY, id=1, amount=5)
            seen.add(order["id"])

    return charge


def a_mark_that_is_unique_and_not_expected(shop: Shop) -> Any:
    @shop.handler(max_retries=2)
    def charge(order: Any) -> None:
        shop.run("INSERT INTO seen VALUES (:id)", id=order["id"])
        shop.run(PAY, id=1, amount=5)

    return charge


def already_settled_is_caught(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        try:
            with Session(shop.engine) as session, session.begin():
                message.settle_with(session)
        except AlreadySettled:
            pass
        shop.run(PAY, id=1, amount=5)

    return charge


def call_without_a_key(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.bank(order["card"], order["amount"])

    return charge


def call_with_a_new_key_each_time(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.keyed_bank(order["card"], uuid.uuid4().hex)

    return charge


def call_inside_the_transaction(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            shop.bank(order["card"])
            session.execute(text(PAY), {"id": 1, "amount": 5})

    return charge


def call_after_the_commit(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
        shop.keyed_bank(order["card"], message.coordinates)

    return charge


def request_over_http_without_a_key(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.post(json.dumps(order))

    return charge


def return_before_publish(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        if shop.count("SELECT count(*) FROM payments WHERE id = :id", id=order["id"]):
            return
        shop.run(PAY, id=order["id"], amount=5)
        message.publish("invoices", {"order": order["id"]})

    return charge


def publish_what_the_first_run_has_changed(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        before = shop.count("SELECT count(*) FROM seen")
        shop.run("INSERT INTO seen VALUES (NULL)")
        shop.run("UPDATE payments SET amount = 7")
        message.publish("invoices", {"number": before + 1})

    return charge


def line_in_a_file(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        with shop.file.open("a") as file:
            file.write(f"{order['id']}\n")

    return charge


def another_program(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        program = f"open({str(shop.file)!r}, 'a').write('1\\n')"
        subprocess.run([sys.executable, "-S", "-c", program], check=True)

    return charge


def commit_for_each_item(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        for number in range(3):
            shop.run(PAY, id=number + 1, amount=5)

    return charge


def statements_that_commit_themselves(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        connection = sqlite3.connect(shop.path, isolation_level=None)
        try:
            connection.execute("INSERT INTO mails VALUES (1)")
            connection.execute("INSERT INTO payments VALUES (1, 5)")
        finally:
            connection.close()

    return charge


def clean_up_in_finally(shop: Shop) -> Any:
    @shop.handler(max_retries=2)
    def charge(order: Any) -> None:
        if shop.count("SELECT count(*) FROM seen"):
            raise RetryLater(1, "another process has the lock")
        shop.run("INSERT INTO seen VALUES (1)")
        try:
            shop.run("UPDATE payments SET amount = 95 WHERE id = 0")
        finally:
            shop.run("DELETE FROM seen")

    return charge


def async_call_without_a_key(shop: Shop) -> Any:
    @shop.handler()
    async def charge(order: Any) -> None:
        await shop.async_bank(order["card"])

    return charge


def a_list_without_marks(shop: Shop) -> Any:
    @shop.handler(bulk=10)
    def charge(orders: list[Any]) -> None:
        with Session(shop.engine) as session, session.begin():
            for order in orders:
                session.execute(text(PAY), {"id": order["id"], "amount": order["amount"]})

    return charge


def unique_by_alone(shop: Shop) -> Any:
    @shop.handler(unique_by="field:id")
    def charge(order: Any) -> None:
        shop.bank(order["card"])

    return charge


#: A handler with a fault → an effect of which it is told, and how.
FAULTY: list[tuple[Callable[[Shop], Any], str, str]] = [
    (insert_without_mark, "payments", "doubled"),
    (add_to_a_balance, "payments", "changed"),
    (two_commits_and_the_mark_in_the_second, "payments", "doubled"),
    (two_commits_and_the_mark_in_the_first, "mails", "lost"),
    (own_mark_before_the_work, "payments", "lost"),
    (own_mark_after_the_work, "payments", "doubled"),
    (mark_in_memory, "payments", "doubled"),
    (a_mark_that_is_unique_and_not_expected, "the delivery", "unfinished"),
    (already_settled_is_caught, "payments", "doubled"),
    (call_without_a_key, "bank", "doubled"),
    (call_with_a_new_key_each_time, "keyed bank", "doubled"),
    (call_inside_the_transaction, "bank", "doubled"),
    (call_after_the_commit, "keyed bank", "lost"),
    (request_over_http_without_a_key, "http", "doubled"),
    (return_before_publish, "messages to invoices", "lost"),
    (publish_what_the_first_run_has_changed, "messages to invoices", "changed"),
    (line_in_a_file, "file", "doubled"),
    (another_program, "file", "doubled"),
    (commit_for_each_item, "payments", "doubled"),
    (statements_that_commit_themselves, "mails", "doubled"),
    (clean_up_in_finally, "the delivery", "unfinished"),
    (async_call_without_a_key, "async bank", "doubled"),
    (a_list_without_marks, "payments", "doubled"),
    (unique_by_alone, "bank", "doubled"),
]


def further(cases: list[Any], fast: set[Any]) -> list[Any]:
    """Return the cases of a test, of which all but some are slow ones."""
    marks = [() if (case[0] if isinstance(case, tuple) else case) in fast else (pytest.mark.slow,) for case in cases]
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=each)
        for case, each in zip(cases, marks, strict=True)
    ]


FAULTY_AT_ONCE = {
    *(two_commits_and_the_mark_in_the_first, a_mark_that_is_unique_and_not_expected, call_without_a_key),
    *(request_over_http_without_a_key, return_before_publish, line_in_a_file, a_list_without_marks),
}


@pytest.mark.parametrize(
    ("make", "effect", "kind"), further(FAULTY, FAULTY_AT_ONCE), ids=lambda value: getattr(value, "__name__", None)
)
def test_a_handler_with_a_fault_is_found(shop: Shop, make: Callable[[Shop], Any], effect: str, kind: str):
    handler = make(shop)
    value = [ORDER, {**ORDER, "id": 2}] if handler.bulk else ORDER
    report = shop.crash(handler, value)
    found = {(fault.effect, fault.kind) for crash in report.unsafe for fault in crash.faults}
    assert (effect, kind) in found, str(report)
    # A crash before anything was done is none that harms.
    assert not report.experiments[0].faults
    with pytest.raises(AssertionError, match=f"{kind}: {effect}: (?s:.*)To do:\n(?s:.*)docs/how-to/"):
        report.assert_safe()


def settled_in_its_transaction(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
            session.execute(text("UPDATE payments SET amount = amount - 5 WHERE id = 0"))

    return charge


def settled_with_messages(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        message.publish("invoices", {"order": order["id"]})
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
            message.publish("mails", {"order": order["id"]}, key="1")

    return charge


def settled_behind_a_call_with_a_key(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        receipt = shop.keyed_bank(order["card"], f"{message.coordinates}:charge")
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
            message.publish("invoices", {"order": order["id"], "receipt": receipt})

    return charge


def set_a_state(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.run("UPDATE payments SET amount = 95 WHERE id = 0")

    return charge


def delete_what_is_there(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        shop.run("DELETE FROM payments")

    return charge


def insert_unless_it_is_there(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            if not session.execute(text("SELECT 1 FROM payments WHERE id = 1")).first():
                session.execute(text(PAY), {"id": 1, "amount": 5})
        message.publish("invoices", {"order": order["id"]})

    return charge


def unique_mark_with_its_error_caught(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        try:
            with Session(shop.engine) as session, session.begin():
                session.execute(text("INSERT INTO seen VALUES (:id)"), {"id": order["id"]})
                session.execute(text(PAY), {"id": 1, "amount": 5})
        except IntegrityError:
            return

    return charge


def call_with_the_same_key(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        shop.keyed_bank(order["card"], message.coordinates)

    return charge


def request_over_http_with_a_key(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        shop.post(json.dumps(order), **{"idempotency-key": message.coordinates})

    return charge


def publish_alone(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        for number in range(3):
            message.publish("invoices", {"order": order["id"], "number": number})

    return charge


def publish_with_a_new_id_inside(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        message.publish("invoices", {"event": uuid.uuid4().hex})

    return charge


def replace_a_file(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any) -> None:
        new = shop.file.with_suffix(".new")
        new.write_text("paid\n")
        new.replace(shop.file)

    return charge


def succeed_at_the_second_attempt(shop: Shop) -> Any:
    @shop.handler()
    def charge(order: Any, message: Message) -> None:
        with Session(shop.engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text(PAY), {"id": 1, "amount": 5})
            if message.attempts.failed < 1:
                raise ConnectionError("the bank does not answer")

    return charge


def async_settled(shop: Shop) -> Any:
    engine = create_async_engine(f"sqlite+aiosqlite:///{shop.path}")

    @shop.handler()
    async def charge(order: Any, message: Message) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(message.settle_with)
            await session.execute(text(PAY), {"id": 1, "amount": 5})
        await engine.dispose()

    return charge


def a_list_with_marks(shop: Shop) -> Any:
    @shop.handler(bulk=10)
    def charge(orders: list[Any], messages: Messages) -> None:
        with Session(shop.engine) as session, session.begin():
            messages.settle_with(session)
            for order, message in zip(orders, messages, strict=True):
                session.execute(text(PAY), {"id": order["id"], "amount": 5})
                message.publish("invoices", {"order": order["id"]})

    return charge


RIGHT: list[Callable[[Shop], Any]] = [
    settled_in_its_transaction,
    settled_with_messages,
    settled_behind_a_call_with_a_key,
    set_a_state,
    delete_what_is_there,
    insert_unless_it_is_there,
    unique_mark_with_its_error_caught,
    call_with_the_same_key,
    request_over_http_with_a_key,
    publish_alone,
    publish_with_a_new_id_inside,
    replace_a_file,
    succeed_at_the_second_attempt,
    async_settled,
    a_list_with_marks,
]


RIGHT_AT_ONCE = {settled_behind_a_call_with_a_key, request_over_http_with_a_key, publish_alone, async_settled}


@pytest.mark.parametrize("make", further(RIGHT, RIGHT_AT_ONCE), ids=lambda make: make.__name__)
def test_a_right_handler_gives_no_alarm(shop: Shop, make: Callable[[Shop], Any]):
    handler = make(shop)
    value = [ORDER, {**ORDER, "id": 2}] if handler.bulk else ORDER
    report = shop.crash(handler, value)
    report.assert_safe()
    assert len(report.experiments) >= 3
    assert str(report).startswith(f"{handler.name} was killed at {len(report.experiments)} points: its effects are")


def test_a_fault_is_told_with_its_line_and_what_to_do(shop: Shop):
    report = shop.crash(call_after_the_commit(shop))
    with pytest.raises(AssertionError) as failed:
        report.assert_safe()
    words = str(failed.value)
    assert 'shop.keyed_bank(order["card"], message.coordinates)' in words
    assert "lost: keyed bank: ('4242', 'orders-0-" in words
    assert "not there, and once without the crash" in words
    assert "Call before that mark is committed, with an idempotency key: docs/how-to/idempotency.md" in words


def test_a_handler_that_fails_without_a_crash_is_refused(shop: Shop):
    @shop.handler()
    def charge(order: Any) -> None:
        raise DeadLetter("no such card")

    with pytest.raises(ValueError, match="fails without a crash, too: dead: permanent after 1 runs: DeadLetter"):
        shop.crash(charge)


def test_a_handler_whose_effects_are_not_seen_is_refused(shop: Shop):
    @shop.handler()
    def charge(order: Any) -> None: ...

    with pytest.raises(ValueError, match="changed nothing that effects"):
        shop.crash(charge)


def test_effects_that_change_by_themselves_are_refused(shop: Shop):
    handler = call_without_a_key(shop)
    look = iter(range(100))
    with pytest.raises(ValueError, match=r"reset\(\) does not bring back what effects\(\) shows"):
        crash_everywhere(handler, ORDER, effects=lambda: next(look), reset=shop.reset)
    seen = iter([0, 0, 1, 0, 2])
    with pytest.raises(ValueError, match="two runs without a crash differ in 'effects': 1 and 2"):
        crash_everywhere(handler, ORDER, effects=lambda: next(seen), reset=shop.reset)


def test_effects_need_a_reset_and_points_have_a_limit(shop: Shop):
    handler = insert_without_mark(shop)
    with pytest.raises(TypeError, match="give reset= with effects="):
        crash_everywhere(handler, ORDER, effects=shop.effects)
    with pytest.raises(ValueError, match=r"has \d+ crash points with this record, and max_points is 2"):
        crash_everywhere(handler, ORDER, effects=shop.effects, reset=shop.reset, max_points=2)


def test_a_run_that_does_not_end_is_killed(shop: Shop):
    @shop.handler()
    def charge(order: Any) -> None:
        threading.Event().wait()

    with pytest.raises(TimeoutError, match=r"did not end within 0\.2 s"):
        crash_everywhere(charge, ORDER, services=[shop.bank], time_limit=0.2)


def test_a_failed_assertion_in_a_handler_ends_the_test_with_its_words(shop: Shop):
    @shop.handler()
    def charge(order: Any) -> None:
        raise AssertionError("amounts are whole numbers")

    with pytest.raises(RuntimeError, match="amounts are whole numbers"):
        shop.crash(charge)


@pytest.mark.parametrize(
    ("make", "faults"),
    [
        (settled_with_messages, set()),
        (two_commits_and_the_mark_in_the_first, {("mails", "lost")}),
        (insert_without_mark, {("payments", "doubled")}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_same_is_found_on_postgresql(
    tmp_path: Path, app: Celery, postgres_server: PostgresServer, make: Callable[[Shop], Any], faults: set[Any]
):
    url = postgres_server.new_database(f"crashes_{make.__name__[:20]}")
    with closing(Shop(tmp_path, lambda **options: declare_handler(app, ("orders",), options), url)) as shop:
        report = shop.crash(make(shop))
    assert {(fault.effect, fault.kind) for crash in report.unsafe for fault in crash.faults} == faults
