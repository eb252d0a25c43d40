"""What handlers need is down for a while: nothing dies, no attempt is spent, and all goes on soon after its end."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.formats.delivery import Delivery, Message
from bridge.formats.retry_record import retry_headers
from bridge.ledger import Mark
from bridge.ledger.fate_rules import Fate
from lossless.transport.message_gates import MessageGates
from tests.delivery_checks import all_settled, choose, command, json_of, ledger
from tests.processes import Stack, eventually

HANDLERS = "tests.handlers.needy"


@pytest.fixture
def bank(stack: Stack) -> Callable[[bool], None]:
    """Take the bank down, or have it there again."""
    file = Path(stack.environ["TEST_RUNS"] + ".down")

    def be(there: bool) -> None:
        if there:
            file.unlink(missing_ok=True)
        else:
            file.touch()

    choose(stack, {"orders": {"commit": "completion"}})
    stack.environ["HANDLERS"] = HANDLERS
    stack.make_topics("orders", "mails")
    return be


def failed(stack: Stack) -> int:
    return sum(run.outcome == "failed" for run in stack.runs("charge"))


def status(stack: Stack) -> Any:
    return json_of(stack, "status")


def gates(stack: Stack) -> dict[bytes, bytes]:
    with stack.redis() as client:
        found: Any = client.hgetall("_gates")
        return dict(found)


def test_an_outage_kills_nothing_spends_nothing_and_slows_nobody_else(stack: Stack, bank: Callable[[bool], None]):
    bridge, worker = stack.bridge(), stack.worker("-c", "2")
    bank(False)
    stack.produce("orders", *range(200))
    said = worker.says("circuit breaker of bank open")
    assert "failed" in said
    eventually(lambda: gates(stack), 5, "the gate is shut")
    down_since = time.monotonic()
    eventually(lambda: bridge.metric("bridge_breaker_open", dependency="bank") == 1.0, 5)
    stack.produce("orders", *range(200, 300))
    stack.produce("mails", *range(100))
    eventually(lambda: len(stack.done("mail")) == 100, 10, "who needs no bank is not held up")
    found = status(stack)
    assert found["breakers"]["bank"]["handlers"] == ["charge"]
    assert found["breakers"]["bank"]["why"]
    assert found["breakers"]["bank"]["next_try"]
    assert found["breakers"]["bank"]["waiting_deliveries"] >= found["breakers"]["bank"]["waiting"] > 0
    assert any("The circuit breaker of 'bank' is open" in problem for problem in found["problems"])
    before = failed(stack)
    while time.monotonic() - down_since < 4:
        time.sleep(0.1)
    assert failed(stack) - before <= 8, "one at a time tries it"
    bank(True)
    eventually(lambda: len(stack.done("charge")) == 300, 25, "all goes on soon after its end")
    all_settled(stack, "orders", done=300, dead=0)
    assert stack.dead_letters("orders") == []
    assert len(set(stack.done("charge"))) == len(stack.done("charge")) == 300
    eventually(lambda: not gates(stack), 10, "the gate is open")
    eventually(lambda: bridge.metric("bridge_breaker_open", dependency="bank") == 0.0, 10)
    assert worker.count("circuit breaker of bank open") == 1


@pytest.mark.slow
def test_a_probe_whose_worker_is_killed_is_replaced(stack: Stack, bank: Callable[[bool], None]):
    stack.environ["TEST_PROBE_WITHIN"] = "2"
    stack.bridge()
    worker = stack.worker("-c", "2")
    bank(False)
    stack.produce("orders", *range(20))
    worker.says("circuit breaker of bank open")
    hold = Path(stack.environ["TEST_RUNS"] + ".hold")
    hold.touch()
    worker.says("one delivery tries")
    time.sleep(0.5)
    worker.kill()
    hold.unlink()
    bank(True)
    stack.worker("-c", "2")
    all_settled(stack, "orders", done=20, dead=0)


@pytest.mark.slow
def test_a_broken_message_among_good_ones_opens_nothing_and_dies(stack: Stack, bank: Callable[[bool], None]):
    stack.bridge()
    worker = stack.worker("-c", "2")
    for start in range(0, 100, 10):
        stack.produce("orders", *range(start, start + 10), {"broken": True})
    all_settled(stack, "orders", done=100, dead=10)
    assert worker.count("circuit breaker of bank open") == 0


@pytest.mark.slow
def test_while_nothing_but_broken_messages_waits_a_good_one_is_tried_and_all_goes_on(
    stack: Stack, bank: Callable[[bool], None]
):
    stack.bridge()
    worker = stack.worker("-c", "2")
    stack.produce("orders", *[{"broken": True}] * 8)
    worker.says("circuit breaker of bank open")
    stack.produce("orders", *range(20))
    eventually(lambda: len(set(stack.done("charge"))) == 20, 20, "those that never failed are tried first")


@pytest.mark.slow
def test_what_is_broken_is_tried_one_after_another_until_one_is_good(stack: Stack, bank: Callable[[bool], None]):
    stack.bridge()
    worker = stack.worker("-c", "2")
    bank(False)
    stack.produce("orders", *[{"broken": True}] * 2, 1, 2)
    worker.says("circuit breaker of bank open")
    eventually(lambda: len({run.coordinates for run in stack.runs("charge") if run.outcome == "failed"}) == 4, 10)
    bank(True)
    worker.says("circuit breaker of bank half-open: bank responds")
    all_settled(stack, "orders", done=2, dead=2)


@pytest.mark.slow
def test_what_a_person_says_to_be_broken_dies_as_it_is_tried_and_holds_nothing_any_more(
    stack: Stack, bank: Callable[[bool], None]
):
    stack.bridge()
    worker = stack.worker("-c", "2")
    stack.produce("orders", *[{"broken": True}] * 6)
    worker.says("circuit breaker of bank open")
    (problem,) = [each for each in status(stack)["problems"] if "circuit breaker" in each]
    assert "bridge policy set charge dead_letter_for=" in problem
    assert stack.dead_letters("orders") == []
    command(stack, "policy", "set", "charge", "dead_letter_for=ValueError", "--why", "they are broken")
    assert {letter.ours["reason"] for letter in stack.dead("orders", 6)} == {"permanent"}
    stack.produce("orders", 1)
    all_settled(stack, "orders", done=1, dead=6)


@pytest.mark.slow
def test_a_handler_slower_than_a_probe_may_be_has_its_breaker_closed_all_the_same(
    stack: Stack, bank: Callable[[bool], None]
):
    stack.environ |= {"TEST_PROBE_WITHIN": "1", "TEST_TAKES": "2.5"}
    stack.bridge()
    worker = stack.worker("-c", "4")
    bank(False)
    stack.produce("orders", *range(8))
    worker.says("circuit breaker of bank open")
    bank(True)
    worker.says("circuit breaker of bank half-open: bank responds")
    all_settled(stack, "orders", done=8, dead=0)


@pytest.mark.slow
def test_an_outage_in_which_all_hangs_until_the_time_limit_makes_no_poison(stack: Stack, bank: Callable[[bool], None]):
    stack.environ["HANDLERS"] = "tests.handlers.needy_hanging"
    stack.bridge()
    worker = stack.worker("-c", "4")
    bank(False)
    stack.produce("orders", *range(6))
    worker.says("circuit breaker of bank open", within=30)
    until = time.monotonic() + 6
    eventually(lambda: time.monotonic() > until, 10, "several probes hang, too")
    bank(True)
    all_settled(stack, "orders", done=6, dead=0)


@pytest.mark.slow
def test_a_handler_that_needs_nothing_goes_on_beside_one_that_waits(stack: Stack, bank: Callable[[bool], None]):
    stack.environ["HANDLERS"] = "tests.handlers.needy_beside"

    def ran(name: str) -> int:
        file = Path(f"{stack.environ['TEST_RUNS']}.{name}")
        return file.stat().st_size if file.exists() else 0

    stack.bridge()
    worker = stack.worker("-c", "2")
    bank(False)
    stack.produce("orders", *range(50))
    worker.says("circuit breaker of bank open")
    stack.produce("orders", *range(11_950))
    eventually(lambda: ran("mail") == 12_000, 40, "more than a partition keeps in memory for the other")
    assert ran("charge") == 0
    bank(True)
    eventually(lambda: ran("charge") == 12_000, 40)
    assert ran("mail") == 12_000


@pytest.mark.slow
def test_what_comes_due_while_nothing_but_what_failed_waits_stays_in_kafka_and_goes_on_at_the_end(
    stack: Stack, bank: Callable[[bool], None]
):
    """No live record comes any more that could try it.

    Some are handed off until the bridge sees, twice a second, that others wait.
    """
    stack.make_topics("orders.retry.1m")
    stack.produce("orders", *[{"parked": n} for n in range(6_000)])
    with ledger(stack, "orders") as (held, there):
        held.write([Mark(there._replace(handler="charge"), range(6_000), Fate.PARKED)])
        for offset in range(6_000):
            message = Message(there.topic, 0, offset, timestamp=5, origin=f"c g {there.topic_id}")
            clone = Delivery(message, "charge", number=1, runs=1)
            said = retry_headers(clone, stack.environ["BRIDGE_GROUP"], due=int((time.time() + 10) * 1000))
            stack.producer.produce(stack.topic("orders.retry.1m"), b"{}", headers=said)
        assert stack.producer.flush(30) == 0
    bank(False)
    bridge, worker = stack.bridge(), stack.worker("-c", "2")
    worker.says("circuit breaker of bank open")
    tier = stack.topic("orders.retry.1m")
    eventually(lambda: bridge.metric("bridge_parked_late_seconds", tier=tier) > 10, 30)
    assert bridge.metric("bridge_deliveries_handed_off_total", topic=tier) < 3_000
    bank(True)
    eventually(lambda: len(set(stack.done("charge"))) == 6_000, 120)
    assert stack.dead_letters("orders") == []


@pytest.mark.slow
def test_what_waits_for_a_breaker_of_another_name_goes_on_with_the_version_that_renamed_it(
    stack: Stack, bank: Callable[[bool], None]
):
    bridge, worker = stack.bridge(), stack.worker("-c", "2")
    bank(False)
    stack.produce("orders", *range(20))
    worker.says("circuit breaker of bank open")
    eventually(lambda: aside(stack) >= 10, 10, "what failed, and what did not, is set aside")
    worker.terminate()
    bridge.terminate()
    stack.environ["TEST_BANK"] = "treasury"
    bank(True)
    stack.worker("-c", "2")
    bridge = stack.bridge()
    bridge.says("no handler names its dependency any more")
    all_settled(stack, "orders", done=20, dead=0)
    assert len(stack.done("charge")) == 20
    assert not gates(stack)
    assert aside(stack) == 0
    # A worker's counts come every few seconds, and attempts that failed stay in the rate of the last minutes.
    eventually(lambda: all(each.startswith("Attempts of charge fail") for each in status(stack)["problems"]), 15)


def aside(stack: Stack) -> int:
    with stack.redis() as client:
        return sum(MessageGates(client).aside().values())
