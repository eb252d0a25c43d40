"""A bulk handler gets many records in one call, and each is done once, whatever fails and dies beside it."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.delivery_checks import all_settled, choose, in_order, json_of, letters, twice
from tests.processes import Run, Stack, eventually

COMPLETION = {"commit": "completion"}


@pytest.fixture
def bulks(stack: Stack) -> Stack:
    """A stack with bulk handlers, and a table `payments` for what they insert."""
    database = stack.folder / "payments.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE payments (id INTEGER)")
    choose(stack, {"rows": COMPLETION, "lanes": {**COMPLETION, "order": "key"}, "stuck": COMPLETION})
    stack.environ |= {"HANDLERS": "tests.handlers.bulks", "TEST_DATABASE": f"sqlite:///{database}"}
    stack.make_topics("rows", "lanes", "stuck")
    return stack


def inserted(stack: Stack) -> list[int]:
    with closing(sqlite3.connect(stack.folder / "payments.sqlite", timeout=30)) as connection:
        return [number for (number,) in connection.execute("SELECT id FROM payments ORDER BY id")]


def calls(stack: Stack, handler: str) -> list[Run]:
    return [run for run in stack.runs(handler) if run.outcome.startswith("of ")]


def test_a_backlog_is_inserted_by_few_calls_and_each_record_once_whatever_fails_beside_it(bulks: Stack):
    said: dict[int, dict[str, Any]] = {100: {"dead": True}, 300: {"later": 1}, 501: {"bad": 1}, 777: {"bad": 9}}
    bulks.produce("rows", *[{"id": number, **said.get(number, {})} for number in range(1_000)])
    bulks.bridge()
    eventually(lambda: bulks.waiting() >= 5, 20)
    bulks.worker()
    all_settled(bulks, "rows", done=998, dead=2)
    assert inserted(bulks) == [number for number in range(1_000) if number not in (100, 777)]
    assert twice(bulks, "rows") == {}
    assert calls(bulks, "rows")[0].outcome == "of 200"
    assert sorted(letter.reason for letter in letters(bulks, "rows", 2)) == ["exhausted", "permanent"]
    (bridge,) = json_of(bulks, "status")["bridges"].values()
    assert bridge["batches"]["rows"] == {"size": 200, "why": "given as bulk="}


def test_work_that_was_committed_as_its_process_died_is_not_done_again(bulks: Stack):
    bulks.produce("rows", *[{"id": number, **({"kill": True} if number == 50 else {})} for number in range(100)])
    bulks.bridge()
    eventually(lambda: bulks.waiting() >= 1, 20)
    bulks.worker()
    all_settled(bulks, "rows", done=100)
    assert inserted(bulks) == list(range(100))


def test_with_an_order_by_key_a_culprit_holds_back_its_key_alone(bulks: Stack):
    for number in range(200):
        times = 2 if number in (20, 21, 150) else 0
        bulks.produce("lanes", {"id": number, "bad": times}, key=b"%d" % (number % 7))
    bulks.bridge()
    bulks.worker()
    all_settled(bulks, "lanes", done=200)
    in_order(bulks, "lanes")
    assert twice(bulks, "lanes") == {}


@pytest.mark.slow
def test_a_record_that_kills_is_found_and_its_neighbours_are_done(bulks: Stack):
    bulks.produce("stuck", *[{"id": number, "kill": number == 30} for number in range(50)])
    bulks.bridge()
    eventually(lambda: bulks.waiting() >= 1, 20)
    bulks.worker()
    all_settled(bulks, "stuck", done=49, dead=1)
    (letter,) = letters(bulks, "stuck", 1)
    assert letter.reason == "poison"
