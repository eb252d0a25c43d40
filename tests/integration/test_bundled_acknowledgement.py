"""One by one, done and acknowledged are one thing: what dies in between is neither, and runs once more."""

import re
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
import redis

from bridge.ledger.fate_rules import Fate, unpack_fates
from bridge.ledger.ledger_scripts import WRITE_FATES
from lossless.transport.transport_scripts import NOTE_BEGUN
from tests.delivery_checks import choose, ledger, twice
from tests.processes import Stack, eventually
from tests.servers.redis import RedisServer

SOON: dict[str, Any] = {"CELERY_CONFIG_MODULE": "tests.handlers.soon_lost"}


@pytest.fixture
def after(stack: Stack) -> Stack:
    stack.environ["HANDLERS"] = "tests.handlers.after"
    stack.make_topics("orders")
    stack.bridge()
    return stack


def ended(stack: Stack, count: int) -> None:
    """All that came is done, nothing lies anywhere, and the ledger says so."""
    eventually(lambda: len(set(stack.done())) == count, 40, "all are done")
    eventually(lambda: not stack.held_ids() and not stack.waiting(), 20, "nothing is held or queued")
    with ledger(stack, "orders") as (fates, account):
        account = account._replace(handler="tests.handlers.after.after")
        assert fates.fates(account, 0, count - 1) == bytes([Fate.DONE]) * count


def test_what_ended_as_its_process_was_killed_runs_once_more_and_its_neighbours_do_not(after: Stack):
    worker = after.worker()
    killer, *others = after.produce("orders", {"kill": "child"}, *range(40))
    ended(after, 41)
    assert twice(after) == {killer: 2}
    assert sorted(after.done()) == sorted([killer, killer, *others])
    assert after.dead_letters("orders") == []
    assert worker.exit_code is None


@pytest.mark.slow
def test_what_ended_as_its_worker_was_killed_runs_once_more_elsewhere(after: Stack):
    worker = after.worker("-c", "1", **SOON)
    first = after.produce("orders", *range(20))
    eventually(lambda: len(after.done()) == 20 and not after.held_ids(), 20)
    (killer,) = after.produce("orders", {"kill": "worker"})
    worker.ends(20)
    last = after.produce("orders", *range(5))
    after.worker(**SOON)
    ended(after, 26)
    assert twice(after) == {killer: 2}
    assert set(after.done()) == {*first, killer, *last}


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["results", "results that a second run looks for"])
@pytest.mark.parametrize("dies", ["child", "worker"])
def test_what_stored_its_result_is_done_whatever_is_killed_then(
    stack: Stack, redis_shared: RedisServer, dies: str, known: bool
):
    choose(stack, {}, result_backend=redis_shared.fresh_url(), worker_deduplicate_successful_tasks=known)
    stack.environ |= {"HANDLERS": "tests.handlers.after", "TEST_AFTER": "results"}
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1")
    stack.produce("orders", 1, {"kill": dies})
    if dies == "worker":
        worker.ends(20)
        stack.worker()
    stack.produce("orders", *range(5))
    ended(stack, 7)
    assert twice(stack) == {}


@pytest.mark.slow
def test_the_ledger_says_done_of_nothing_that_is_queued_or_held_and_handed_of_nothing_that_is_not(after: Stack):
    worker = after.worker()
    after.produce("orders", 0)
    ended(after, 1)
    after.produce("orders", *range(1500))
    with ledger(after, "orders") as (fates, account), closing(after.redis()) as client:
        account = account._replace(handler="tests.handlers.after.after")
        owners = list(client.scan_iter("_taken.*"))
        seen = 0
        while len(after.done()) < 1501:
            with client.pipeline(transaction=True) as pipe:
                pipe.getrange(fates.page_key(account, 0), 0, -1)
                pipe.lrange(after.queue, 0, -1)
                for owner in owners:
                    pipe.hvals(owner)
                page, *entries = pipe.execute()
            there = {found for some in entries for raw in some for found in offsets_in(raw)}
            known = {offset: Fate(fate) for offset, fate in enumerate(unpack_fates(page)[:1501])}
            done = {offset for offset, fate in known.items() if fate is Fate.DONE}
            handed = {offset for offset, fate in known.items() if fate is Fate.HANDED}
            assert not done & there
            assert not handed - there
            seen += bool(done and there)
    assert seen > 3
    ended(after, 1501)
    assert twice(after) == {}
    assert worker.exit_code is None


def offsets_in(raw: bytes) -> list[int]:
    """The offset of a message's only delivery, as its id says it."""
    return [int(found) for found in re.findall(rb'"id": "[^"]*-0-(\d+):', raw)]


@pytest.mark.usefixtures("from_nothing")
def test_a_child_makes_no_trip_for_what_comes_for_the_first_time(after: Stack):
    after.worker()
    after.produce("orders", 0)
    ended(after, 1)
    with after.redis() as client, client.monitor() as monitor:
        after.produce("orders", *range(300))
        ended(after, 301)
        calls = count_script_calls(client, monitor)
    # Its mark was one for each. How many acknowledgements the worker bundles depends on how fast they come.
    assert calls[WRITE_FATES.sha] + calls[NOTE_BEGUN.sha] < 150, calls


def count_script_calls(client: "redis.Redis", monitor: Any) -> Counter[str]:
    """How often each script was called since the monitor began, by its hash."""
    client.echo("over")
    calls: Counter[str] = Counter()
    while (command := monitor.next_command()["command"]) != "ECHO over":
        name, _, rest = command.partition(" ")
        if name == "EVALSHA":
            calls[rest.partition(" ")[0]] += 1
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_what_lies_twice_in_its_queue_runs_once_in_one_process(after: Stack, pool: str):
    after.worker().terminate()
    after.produce("orders", *range(300))
    eventually(lambda: after.waiting() >= 300, 30, "queued")
    with after.redis() as client:
        entries = client.lrange(after.queue, 0, -1)
        client.delete(after.queue)
        client.rpush(after.queue, *[entry for entry in entries for _ in range(2)])
    after.worker("-P", pool, "-c", "1")
    ended(after, 300)
    assert twice(after) == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["frozen", "cut", "restarted"])
def test_what_ends_while_redis_is_away_is_done_once_and_marked(
    mortal_stack: Stack, mortal_redis: RedisServer, fault: str
):
    stack, server = mortal_stack, mortal_redis
    stack.environ["HANDLERS"] = "tests.handlers.after"
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", {"seconds": 1.0}, {"seconds": 1.0})
    eventually(lambda: len(stack.held_ids()) == 2, 20)
    match fault:
        case "frozen":
            server.freeze()
        case "restarted":
            server.stop()
    eventually(lambda: len(stack.done()) == 2, 20, "they end meanwhile")
    match fault:
        case "frozen":
            server.thaw()
        case "cut":
            with stack.redis() as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        case "restarted":
            server.start()
    ended(stack, 2)
    assert twice(stack) == {}
    assert worker.exit_code is None


@pytest.mark.slow
def test_all_of_it_holds_with_completion_and_an_order(stack: Stack):
    choose(stack, {"orders": {"commit": "completion", "order": "key"}})
    stack.environ["HANDLERS"] = "tests.handlers.after"
    stack.make_topics("orders")
    stack.bridge()
    stack.worker()
    for number in range(4):
        stack.produce("orders", *({"n": n, "kill": "child"} if n == 2 else n for n in range(10)), key=b"%d" % number)
    eventually(lambda: stack.committed("orders") == 40, 60, "all of it is settled")
    assert set(twice(stack).values()) == {2}
    assert len(twice(stack)) == 4
