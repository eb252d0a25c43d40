"""Messages that their producer published twice: of the records with one name one runs, and all are settled."""

import random
import time
from collections import Counter
from typing import Any

import pytest

from tests.delivery_checks import all_settled, audit, choose, json_of, twice
from tests.processes import Stack, eventually


def named(stack: Stack, name: str | None, value: Any, partition: int = 0) -> str:
    headers = [] if name is None else [("message_id", name)]
    (where,) = stack.produce("named", value, headers=headers, partition=partition)
    return where


def test_of_two_records_with_one_name_one_runs_and_both_are_done(calm: Stack):
    firsts = [named(calm, f"a-{number}", {"n": number}) for number in range(10)]
    nameless = [named(calm, None, {"n": number}) for number in range(5)]
    seconds = [named(calm, f"a-{number}", {"n": number}, partition=1) for number in range(10)]
    eventually(lambda: audit(calm, "named")["done"] == 25, 30)
    ran = calm.done("named")
    assert len(ran) == 15
    assert {*nameless} < {*ran}
    assert all(ran.count(first) + ran.count(second) == 1 for first, second in zip(firsts, seconds, strict=True))
    for where in (firsts[0], seconds[0]):
        (delivery,) = json_of(calm, "find", where)["deliveries"]
        assert delivery["fate"] == "done"
    # While one runs, the other waits.
    slow = named(calm, "slow", {"sleep": 2})
    eventually(lambda: calm.runs("named", slow), 20)
    named(calm, "slow", {}, partition=1)
    # What dies leaves its name to the next.
    named(calm, "dies", {"dead": True})
    calm.dead("named", 1)
    heir = named(calm, "dies", {})
    # A retry does, too, and is a duplicate then.
    again = named(calm, "fails", {"fail": 1})
    all_settled(calm, "named", done=29, dead=1)
    assert sorted(calm.done("named")[15:]) == sorted([slow, heir, again])
    assert twice(calm, "named") == {}


def test_in_batches_too(calm: Stack):
    calm.produce("named_many", *({"id": number % 100} for number in range(200)))
    all_settled(calm, "named_many", done=200)
    assert len(calm.done("named_many")) == 100


def test_what_kills_its_process_until_it_is_dead_leaves_its_name_to_the_next(stack: Stack):
    choose(stack, {"named": {"commit": "completion", "order": "partition"}}, lost_pauses=[0.2, 0.2])
    stack.make_topics("named", partitions=2)
    stack.bridge()
    stack.worker("-c", "1")
    named(stack, "a-1", {"kill": 9})
    (letter,) = stack.dead("named", 1, 60)
    assert letter.ours["reason"] == "poison"
    heirs = [named(stack, "a-1", {}, partition=1), named(stack, "a-2", {}, partition=1)]
    all_settled(stack, "named", done=2, dead=1)
    assert stack.done("named") == heirs


@pytest.mark.slow
def test_killed_workers_lose_no_name_and_repeat_at_most_what_they_ran(stack: Stack):
    choose(stack, {"named_many": {"commit": "completion"}})
    stack.make_topics("named_many", partitions=2)
    stack.bridge()
    workers = [stack.worker("-c", "2", wait=False) for _ in range(2)]
    orders = [{"id": number, "sleep": 0.01, **({"kill": 1} if number % 50 == 7 else {})} for number in range(300)] * 2
    random.Random(1).shuffle(orders)
    stack.produce("named_many", *orders)
    for victim in workers:
        before = len(stack.done())
        eventually(lambda before=before: len(stack.done()) > before + 20, 60)  # type: ignore[misc]
        victim.kill()
        time.sleep(0.5)
        stack.worker("-c", "2", wait=False)
    all_settled(stack, "named_many", done=600, within=120)
    ids = Counter(run.value["id"] for run in stack.runs() if run.outcome == "done")
    assert set(ids) == set(range(300))
    # A killed worker has marks of 5 ms in each of its two processes, and what it was running.
    assert sum(ids.values()) <= 300 + 20
