"""`bridge deadletters show 1 --pytest`: the file fails on the old code and passes on the fixed one, or says why not."""

import ast
import asyncio
import ctypes
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.editing.handler_sandbox import HandlerSandbox
from bridge.deadletters.editing.system_call_filter import is_sealed_by_kernel
from bridge.deadletters.editing.value_minimizer import ValueMinimizer
from bridge.deadletters.model.failure_group import find_failure_group
from bridge.formats.delivery import Message
from bridge.formats.failure import Failure
from tasks.declaration import app_setup
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.doc_blocks import ROOT

HANDLERS = """
import socket

from pydantic import BaseModel

from tasks import handler

RATES = {"DE": 1.0, "AT": 1.1}


class Payment(BaseModel):
    id: int
    amount: float
    card: str = ""


@handler("orders")
def charge(order, message):
    total = sum(line["price"] * line["pieces"] for line in order["lines"])
    return total * RATES[order["customer"]["country"]]


@handler("payments")
def book(payment: Payment): ...


@handler("orders", bulk=10)
def store(orders):
    return [10 / order["pieces"] for order in orders]


@handler("orders")
def notify(order):
    if "@" in order["customer"]["email"]:
        raise ValueError("no mail server for it")


@handler("orders")
def call(order):
    socket.create_connection(("127.0.0.1", 9), 1)


@handler("orders")
def seen(order):
    return order
"""
ORDER = {
    "id": 4711,
    "customer": {"name": "Ada", "email": "ada@example.com", "country": "CH", "address": {"street": "x" * 300}},
    "lines": [{"article": f"a{number}", "price": 5.10, "pieces": number} for number in range(20)],
    "notes": ["gift", "call before"],
}


class Shop:
    """A package with handlers, whose dead letters are recorded as workers would write them."""

    def __init__(self, folder: Path, app: Celery, database: Any, commands: Callable[..., Commands]) -> None:
        self.folder, self.app, self._database, self._commands = folder, app, database, commands

    def record(self, handler: str, value: Any, error: BaseException | None = None, **other: Any) -> None:
        """Record the dead letter of a run of a handler, or of an error that it did not raise here."""
        name = f"dead_shop.handlers.{handler}"
        data = json.dumps(value).encode()
        tasks: Mapping[str, Any] = self.app.tasks
        if error is None:
            with pytest.raises(Exception) as raised:  # noqa: PT011
                tasks[name].call_alone(Message("orders", 0, 7, value=data))
            error = raised.value
            # In a worker, no code of the user's calls the handler.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        failure = Failure.from_error(error)
        group = find_failure_group(name, failure.error_class, failure.error_traceback, failure.error_message)
        made = letter(
            7,
            handler=name,
            error_class=group.error_class,
            place=group.place,
            value=data,
            traceback=failure.error_traceback,
            error_message=failure.error_message,
            **other,
        )
        with self._database.writing() as connection:
            LetterWriter(connection, IdCache(), 5_000_000, 1_000_000).record([made])

    def show(self, **said: Any) -> tuple[str, str]:
        """Return the file that the command prints, and what it says of it."""
        ended = self._commands(self.app, **said).run("show", 1, "--pytest")
        assert ended.exit_code == 0, ended.output
        return ended.stdout, ended.stderr

    def run_pytest(self, text: str) -> str:
        (self.folder / "test_letter.py").write_text(text)
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_letter.py"]
        ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        return ended.stdout.splitlines()[-1]

    def fix(self, old: str, new: str) -> None:
        file = self.folder / "dead_shop" / "handlers.py"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture
def shop(tmp_path: Path, database: Any, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    package = tmp_path / "dead_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "handlers.py").write_text(HANDLERS)
    (tmp_path / "celeryconfig.py").write_text('imports = ("dead_shop.handlers",)\nbroker_url = "memory://"\n')
    app = Celery("page", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)
    monkeypatch.setattr(app_setup, "_used", [app])
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("dead_shop.handlers")
    yield Shop(tmp_path, app, database, lambda used, **said: Commands(monkeypatch, database_url, used, **said))
    app.close()
    for name in [name for name in sys.modules if name.split(".")[0] == "dead_shop"]:
        del sys.modules[name]


def test_the_test_of_a_letter_fails_until_the_handler_is_fixed(shop: Shop):
    shop.record("charge", ORDER)
    text, said = shop.show(DEADLETTERS_MASK="orders: customer.email, customer.name, @key")
    assert 'VALUE = b\'{"lines":[],"customer":{"country":"CH"}}\'' in text or (
        'VALUE = b\'{"customer":{"country":"CH"},"lines":[]}\'' in text
    )
    assert "!= ('KeyError', \"'CH'\")" in text
    assert said.startswith("reproduced; the value is cut from 1,")
    assert " to 40 bytes (" in said
    assert "1 failed" in shop.run_pytest(text)
    shop.fix('"AT": 1.1', '"AT": 1.1, "CH": 0.9')
    assert "1 passed" in shop.run_pytest(text)


def test_a_value_that_a_model_refuses_keeps_what_the_model_needs(shop: Shop):
    shop.record("book", {"id": 1, "amount": "five", "card": "4242", "more": [1, 2]}, reason="undecodable")
    text, said = shop.show()
    assert said.startswith("reproduced")
    assert "more" not in text
    assert "4242" not in text
    assert "1 failed" in shop.run_pytest(text)
    shop.fix("amount: float", "amount: float | str")
    assert "1 passed" in shop.run_pytest(text)


def test_a_bulk_handlers_letter_runs_alone(shop: Shop):
    shop.record("store", {"article": "a", "pieces": 0})
    text, _ = shop.show()
    assert "VALUE = b'{\"pieces\":0}'" in text
    assert "!= ('ZeroDivisionError', 'division by zero')" in text


def test_nothing_that_is_masked_is_in_the_file_and_a_failure_that_needs_it_is_skipped(shop: Shop):
    shop.record("notify", ORDER)
    text, said = shop.show(DEADLETTERS_MASK="orders: customer.email")
    assert "it fails only with what is masked here (customer.email)" in said
    assert "ada@example.com" not in text
    assert "@pytest.mark.skip" in text


def test_a_failure_of_an_outside_service_is_said_not_to_be_reproduced(shop: Shop):
    shop.record("call", ORDER)
    text, said = shop.show(DEADLETTERS_MASK="orders: customer.email")
    assert "before it fails it reaches outside (a connection to 127.0.0.1:9)" in said
    assert "ada@example.com" not in text
    assert "[masked]" in text
    assert "1 skipped" in shop.run_pytest(text)


def test_a_value_that_the_handler_takes_here_is_said_to_fail_elsewhere(shop: Shop):
    shop.record("seen", ORDER, ConnectionError("the bank does not answer"))
    text, said = shop.show()
    assert "the handler takes this value here: the failure came from elsewhere" in said
    assert "@pytest.mark.skip" in text


def test_another_failure_is_not_taken_for_the_letters_own(shop: Shop):
    shop.record("charge", {"lines": []}, ValueError("no"))
    _, said = shop.show()
    assert "here it fails in another way: KeyError at " in said


BREAKS_OUT = '""";open("ran","w");"""'


@pytest.mark.parametrize("error", [None, type(f"E\\{BREAKS_OUT}\nopen('ran', 'w')\r\x1b[2J", (Exception,), {})("no")])
def test_no_text_of_a_record_is_code_of_the_file(shop: Shop, error: BaseException | None):
    shop.record("charge", {"lines": [], "customer": {"country": "CH"}, f"card_{BREAKS_OUT}": "1"}, error)
    text, said = shop.show(DEADLETTERS_MASK="orders: card_*")
    docstring, *body = ast.parse(text).body
    assert isinstance(docstring, ast.Expr)
    assert "open(" in ast.unparse(docstring)
    assert not any(isinstance(each, ast.Expr) for each in body)
    assert "\x1b" not in text + said


def test_the_test_of_a_letter_without_a_handler_is_skipped(shop: Shop):
    shop.record("charge", ORDER)
    del shop.app.tasks["dead_shop.handlers.charge"]
    text, said = shop.show()
    assert "dead_shop.handlers.charge is no handler of this app" in said
    assert "1 skipped" in shop.run_pytest(text.replace("dead_shop.handlers.charge", "dead_shop.handlers.gone"))


def _connect_in_c(message: Message) -> None:
    import psycopg

    psycopg.connect("host=127.0.0.1 port=9 connect_timeout=1")


def _write(message: Message) -> None:
    Path(message.topic).write_text("written")


def _fork_in_c(message: Message) -> None:
    if ctypes.CDLL(None).fork() == 0:
        time.sleep(20)
        os._exit(0)


OUTSIDE: dict[str, Callable[[Message], object]] = {
    "a connection of a C library": _connect_in_c,
    "a file": _write,
    "a program": lambda message: subprocess.run(["true"]),
    "a deleted file": lambda message: os.remove(message.topic),
    "another process": _fork_in_c,
    "a signal": lambda message: ctypes.CDLL(None).kill(os.getppid(), 0),
    "a signal to a group": lambda message: os.killpg(os.getppid(), 0),
    "a signal to a thread": lambda message: ctypes.CDLL(None).tgkill(os.getppid(), os.getppid(), 0),
}


@pytest.mark.parametrize("run", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.skipif(not is_sealed_by_kernel(), reason="the kernel's filter is Linux's")
def test_a_trial_leaves_nothing_outside(run: Callable[[Message], object], tmp_path: Path):
    kept = tmp_path / "kept"
    kept.write_text("as before")
    ended = HandlerSandbox(run).run(Message(str(kept), 0, 1))
    assert ended.refused
    assert kept.read_text() == "as before"


@pytest.mark.skipif(not is_sealed_by_kernel(), reason="the kernel's filter is Linux's")
def test_a_trial_has_threads_and_an_event_loop():
    def run(message: Message) -> None:
        with ThreadPoolExecutor(2) as pool:
            found = [*pool.map(len, ["a", "bc"])]
        raise ValueError(found, asyncio.run(asyncio.sleep(0.01, "waited")))

    failure = HandlerSandbox(run).run(Message("orders", 0, 1)).failure
    assert failure is not None
    assert failure.error_message == "([1, 2], 'waited')"


def test_a_trial_ends_in_time_and_within_its_memory():
    def spin(message: Message) -> None:
        while True:
            pass

    assert HandlerSandbox(spin, 0.2).run(Message("orders", 0, 1)).ended_by == "it ran for more than 0.2 s"
    failure = HandlerSandbox(lambda message: bytes(4 << 30)).run(Message("orders", 0, 1)).failure
    assert failure is not None
    assert failure.error_class == "MemoryError"
    assert (
        HandlerSandbox(lambda message: os.abort()).run(Message("orders", 0, 1)).ended_by
        == "its process died (signal SIGABRT)"
    )


@pytest.mark.parametrize(
    ("value", "words", "least"),
    [
        (b'{"a": [1, 2, {"b": "xNEEDLEx"}], "c": 5}', (b"NEEDLE",), b'"NEEDLE"'),
        (b'{"a": {"x": 1, "y": 2}, "b": 3}', (b'"a"', b'"y"'), b'{"a":{"y":2}}'),
        (b"\xff\xfe plain NEEDLE bytes", (b"NEEDLE",), b"NEEDLE"),
        (b'[1.50, 1e400, "a"]', (b"1e400",), b"[1e400]"),
    ],
)
def test_a_value_is_cut_to_what_still_fails(value: bytes, words: tuple[bytes, ...], least: bytes):
    smaller = ValueMinimizer(lambda tried: all(word in tried for word in words)).reduce(value)
    assert len(smaller.value) <= len(value)
    assert all(word in smaller.value for word in words)
    assert smaller.is_least
    if words != (b"NEEDLE",) or value[0] != ord("{"):
        assert smaller.value == least


def test_trials_are_bounded():
    tried: list[bytes] = []

    def fails(value: bytes) -> bool:
        tried.append(value)
        return value.count(b"z") > 30

    value = json.dumps({f"k{number}": "z" for number in range(50)}).encode()
    smaller = ValueMinimizer(fails, trials=5).reduce(value)
    assert len(tried) == 5
    assert not smaller.is_least
    assert smaller.value.count(b"z") > 30


@pytest.mark.parametrize(
    "value", [json.dumps([*range(100_000, 130_000)]).encode(), b'"' + b"z" * 300_000 + b'"', b"\xff" * 300_000]
)
def test_a_reduction_ends_in_time_whatever_the_size_of_the_value(value: bytes):
    begun = time.monotonic()
    assert not ValueMinimizer(lambda tried: False, seconds=0.2).reduce(value).is_least
    assert time.monotonic() - begun < 3


def test_a_run_that_tells_nothing_but_lives_is_ended_in_time():
    def close_pipe(message: Message) -> None:
        os.closerange(3, 50)
        time.sleep(60)

    assert HandlerSandbox(close_pipe, 2).run(Message("orders", 0, 1)).died
