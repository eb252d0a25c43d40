"""What the demo sends and shows: every kind of trouble comes, and what is shown adds up."""

import json
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bridge.demo.delivery_watch import (
    DEAD,
    DONE,
    RETRYING,
    STATES,
    WAITING,
    BoardRow,
    DeliveryBoard,
    DeliveryFailure,
    _read_exception,
)
from bridge.demo.demo_orders import ORDER_KINDS, TROUBLE_EVERY, TROUBLED, generate_orders
from bridge.demo.demo_screen import (
    BAR,
    DemoScreen,
    _bar,
    _format_counts,
    _format_failure,
    make_outcome_table,
)


@given(st.integers())
def test_the_same_seed_gives_the_same_orders_and_no_trouble_twice_before_all_have_come(seed):
    orders = list(islice(generate_orders(seed), 300))
    assert orders == list(islice(generate_orders(seed), 300))
    troubles = [order.kind for order in orders if order.kind != "ordinary"]
    for start in range(0, len(troubles) - len(TROUBLED) + 1, len(TROUBLED)):
        assert set(troubles[start : start + len(TROUBLED)]) == {kind.name for kind in TROUBLED}
    assert 0.5 < len(troubles) * TROUBLE_EVERY / 300 < 1.7


def test_an_order_is_json_but_for_the_kinds_that_are_none():
    raw = {kind.name: kind.raw for kind in ORDER_KINDS if kind.raw != b""}
    for order in islice(generate_orders(1), 500):
        if order.kind in raw:
            assert order.value == raw[order.kind]
        else:
            fields = json.loads(order.value or b"")
            assert ("amount" in fields) is (order.kind != "amount missing")


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ("Failed('ConnectionError: away')", "ConnectionError: away"),
        ('Failed("it\'s away")', "it's away"),
        ("Failed('broken", "Failed('broken"),
        ("", ""),
    ],
)
def test_an_events_exception_is_shown_as_what_it_says(exception, words):
    assert _read_exception(exception) == words


@given(st.fixed_dictionaries({state: st.integers(0, 10**6) for state in STATES}))
def test_the_bar_is_always_as_long(counts):
    assert len(_bar(Counter(counts)).plain) == BAR


def test_a_failure_takes_one_line_with_how_it_went_on():
    line = _format_failure(
        DeliveryFailure("orders-3-7:shop.charge", "shop.errors.BankAway: \n" + "x" * 200, "exhausted")
    ).plain
    assert line.startswith("charge orders-3-7")
    assert "BankAway" in line
    assert line.endswith("dead: exhausted")
    assert len(line) <= BAR
    assert _format_failure(DeliveryFailure("orders-3-7:shop.charge", "E: x", RETRYING)).plain.endswith("again")


def test_what_is_said_and_shown_at_the_end_adds_up():
    said = _format_counts(Counter({DONE: 2, DEAD: 1, WAITING: 1}))
    assert said == "4 deliveries: 2 handled, 0 retrying, 0 parked, 1 dead, 1 waiting"
    rows = {
        "ordinary": BoardRow(records=2, retries=1, outcomes={"shop.charge": Counter({DONE: 2})}),
        "odd": BoardRow(records=1, retries=2, outcomes={"shop.charge": Counter({"exhausted": 1})}),
    }
    console = Console(width=100)
    with console.capture() as captured:
        console.print(make_outcome_table(rows, ["shop.charge"]))
    lines = [line.split() for line in captured.get().splitlines() if line.split()]
    assert ["odd", "1", "1", "dead:", "exhausted", "2"] in lines
    assert lines[-1] == ["all", "3", "2", "done,", "1", "dead", "3"]


def test_a_halt_is_on_the_screen():
    board, console = DeliveryBoard(["charge"]), Console(record=True, width=200)
    board.halted = "by ann: the bank is closed"
    DemoScreen(board, console, "demo", "").show()
    assert "halted by ann: the bank is closed" in console.export_text()
