"""A range of a source topic is sent again: what needs it, once, while the group's offsets stay where they are."""

import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import all_settled, audit, command, end, json_of
from tests.processes import Process, Stack, eventually

#: Each command is a process, which takes seconds to start on a busy machine.
pytestmark = pytest.mark.timeout(300)

CHARGE = "tests.handlers.mended.charge"
NOTIFY = "tests.handlers.mended.notify"


@pytest.fixture
def shop(stack: Stack, desk_url: str) -> Stack:
    """Ten orders, of which two have died at one of two handlers."""
    stack.environ |= {
        "HANDLERS": "tests.handlers.mended",
        "KAFKA_HANDLERS_VERSION": "1",
    }
    stack.make_topics("orders", partitions=2)
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", *[{"amount": at, "bad": at in (3, 7)} for at in range(10)])
    # What is handed off is committed: the bridge waits for nobody's end.
    eventually(lambda: audit(stack)["handed"] == 0 and len(stack.dead_letters("orders")) == 2, 60)
    all_settled(stack, "orders", done=18, dead=2, letters=2)
    worker.terminate()
    stack.environ["KAFKA_HANDLERS_VERSION"] = "2"
    return stack


def counts(stack: Stack, handler: str) -> dict[int, int]:
    """By amount, how often an order was done."""
    found: dict[int, int] = {}
    for run in stack.runs(handler):
        if run.outcome == "done":
            found[run.value["amount"]] = found.get(run.value["amount"], 0) + 1
    return found


def redrive(stack: Stack, *words: str, code: int = 0) -> Any:
    return json_of(stack, "redrive", stack.topic("orders"), *words, code=code)


def test_what_is_dead_is_sent_and_what_is_done_is_left_alone(shop: Stack):
    committed = shop.committed("orders")
    shop.worker()
    found = redrive(shop, "--from", "earliest", "--yes", "--wait", "--canary")
    assert found["state"] == "done"
    assert found["outcomes"] == {"done": 2}
    assert found["counts"]["stands"] == {CHARGE: {"dead": 2, "done": 8}, NOTIFY: {"done": 10}}
    assert counts(shop, "charge") == dict.fromkeys(range(10), 1)
    assert counts(shop, "notify") == dict.fromkeys(range(10), 1)
    assert shop.committed("orders") == committed
    assert audit(shop)["done"] == 20
    # Of a canary of two the first has one attempt.
    sent = Counter(dict(record.headers() or ()).get("replay_once") for record in shop.records("orders.replay"))
    assert sent == {None: 1, b"1": 1}


@pytest.mark.slow
def test_with_again_what_is_done_runs_once_more_and_no_more(shop: Stack):
    shop.worker()
    found = redrive(shop, "--from", "earliest", "--handler", CHARGE, "--again", "--yes", "--wait")
    assert found["outcomes"] == {"done": 10}
    assert counts(shop, "charge") == {at: 1 if at in (3, 7) else 2 for at in range(10)}
    assert counts(shop, "notify") == dict.fromkeys(range(10), 1)
    # Asked for again, by another plan.
    assert redrive(shop, "--from", "earliest", "--again", "--yes", "--wait")["outcomes"] == {"done": 20}
    assert counts(shop, "charge") == {at: 2 if at in (3, 7) else 3 for at in range(10)}
    assert audit(shop)["unaccounted"] == 0


@pytest.mark.slow
def test_a_canary_stops_where_what_is_sent_dies_again_and_goes_on_once_it_is_mended(shop: Stack):
    worker = shop.worker(KAFKA_HANDLERS_VERSION="1")
    words = ("--from", "earliest", "--yes", "--wait", "--canary")
    stopped = redrive(shop, *words, code=3)
    assert (stopped["state"], stopped["outcomes"]) == ("stopped", {"dead": 1, "waiting": 1})
    assert sum(run.outcome == "begun" for run in shop.runs("charge")) == 10 + 1
    worker.terminate()
    shop.worker()
    assert redrive(shop, *words)["outcomes"] == {"done": 2}
    assert counts(shop, "charge") == dict.fromkeys(range(10), 1)


@pytest.mark.slow
def test_what_the_ledger_has_forgotten_may_be_done_and_runs_only_where_that_is_asked_for(shop: Stack):
    with shop.redis() as client:
        client.flushdb()
    forgotten = redrive(shop, "--from", "earliest", "--plan")["counts"]
    assert forgotten["letters"] == 0
    assert forgotten["stands"] == {CHARGE: {"unknown": 10}, NOTIFY: {"unknown": 10}}
    shop.worker()
    words = ("--from", "earliest", "--handler", NOTIFY, "--again", "--yes", "--wait")
    assert redrive(shop, *words)["outcomes"] == {"done": 10}
    assert counts(shop, "notify") == dict.fromkeys(range(10), 2)


@pytest.mark.slow
def test_a_range_is_of_partitions_offsets_and_keys(shop: Stack):
    (place,) = shop.produce("orders", {"amount": 99}, key=b"k")
    shop.worker()
    eventually(lambda: 99 in counts(shop, "charge"), 60)
    _, partition, offset = place.rsplit("-", 2)
    eventually(lambda: audit(shop)["done"] == 20, 60)
    by_key = redrive(shop, "--from", "earliest", "--key", "k", "--again", "--plan")
    assert by_key["counts"]["stands"] == {CHARGE: {"done": 1}, NOTIFY: {"done": 1}}
    words = ("--from", offset, "--to", str(int(offset) + 1), "--partition", partition, "--plan")
    assert sum(redrive(shop, *words)["counts"]["stands"][CHARGE].values()) == 1
    assert redrive(shop, "--from", "2h", "--to", "1h", "--plan")["counts"]["stands"] == {}


@pytest.mark.slow
def test_what_is_no_range_is_refused_with_why(stack: Stack, tmp_path: Path):
    """A refusal needs neither a bridge nor a worker."""
    stack.environ |= {
        "HANDLERS": "tests.handlers.mended",
        "DEADLETTERS_DATABASE_URL": f"sqlite:///{tmp_path}/letters.db",
    }
    stack.make_topics("orders", partitions=2)
    for partition in range(2):
        stack.produce("orders", {"amount": 1}, partition=partition)
    for words, why in (
        (("--from", "earliest", "--handler", "orders.nobody"), "is no handler of"),
        (("--from", "earliest", "--partition", "7"), "has no partition 7"),
        (("--from", "latest", "--to", "earliest"), "ends (earliest) before it begins"),
        (("--from", "soon"), "'soon' is no time"),
    ):
        printed = command(stack, "redrive", stack.topic("orders"), *words, "--yes", code=1)
        assert why in " ".join(printed.split()), words


@pytest.mark.slow
def test_what_is_on_its_way_is_left_alone(shop: Stack):
    # No worker runs: what comes now stays in the queue.
    shop.produce("orders", *[{"amount": 50 + at} for at in range(5)])
    eventually(lambda: audit(shop)["handed"] == 10, 60)
    found = redrive(shop, "--from", "earliest", "--again", "--plan")
    assert found["counts"]["stands"][CHARGE] == {"dead": 2, "done": 8, "handed": 5}
    assert found["counts"]["letters"] == 20


@pytest.mark.slow
def test_one_that_is_killed_is_gone_on_with_and_sends_nothing_twice(stack: Stack, desk_url: str):
    stack.environ |= {
        "HANDLERS": "tests.handlers.mended",
        "KAFKA_HANDLERS_VERSION": "2",
    }
    stack.make_topics("orders", partitions=2)
    stack.bridge()
    stack.worker()
    stack.produce("orders", *[{"amount": at} for at in range(400)])
    # Read off a file: an audit is a process, which takes from what is waited for.
    eventually(lambda: len(stack.done()) == 800, 120)
    eventually(lambda: audit(stack)["done"] == 800, 60)
    words = ("redrive", stack.topic("orders"), "--from", "earliest", "--handler", CHARGE, "--again", "--yes")
    # By the rate it cannot be through before it is killed.
    process: Process = stack.start("redrive", sys.executable, "-m", "bridge", *words, "--rate", "50")
    eventually(lambda: end_of(stack, "orders.replay") > 50, 60, "it sends")
    process.signal(signal.SIGKILL)
    process.ends()
    assert end_of(stack, "orders.replay") < 400
    # Its lease runs out before another takes it up.
    eventually(lambda: command(stack, "deadletters", "plans", "apply", "1", "--yes", code=None) and applied(stack), 90)
    eventually(lambda: len(stack.done("charge")) == 800, 60)
    assert set(counts(stack, "charge").values()) == {2}
    assert end_of(stack, "orders.replay") == 400


def end_of(stack: Stack, topic: str) -> int:
    """How many records a topic has had."""
    return end(stack, topic) if stack.has_topic(topic) else 0


def applied(stack: Stack) -> bool:
    """Whether the plan was applied whole."""
    return bool(json_of(stack, "deadletters", "plans", "show", "1")["state"] == "done")
