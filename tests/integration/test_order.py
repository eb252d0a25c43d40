"""What runs one after another does so, whatever fails."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import all_settled, command, in_order, json_of, offset, twice
from tests.processes import Stack, eventually


def test_a_failing_key_holds_back_its_own_messages_and_no_others(calm: Stack):
    keys = [b"a", b"b", b"c"]
    values = [{"fail": 5} if n == 3 else {"dead": True} if n == 4 else {"n": n} for n in range(30)]
    placed = [calm.produce("keyed", value, key=keys[n % 3])[0] for n, value in enumerate(values)]
    all_settled(calm, "keyed", done=29, dead=1)
    in_order(calm, "keyed")
    at = {run.coordinates: run.time for run in calm.runs("keyed") if run.outcome == "done"}
    of_a, of_c = placed[0::3], placed[2::3]
    # 1.5 s of waiting: c was long done.
    assert at[of_c[-1]] < at[of_a[1]]
    assert all(at[later] > at[of_a[1]] for later in of_a[2:])
    assert twice(calm, "keyed") == {}


def test_batches_keep_the_order_of_each_key(calm: Stack):
    values = [{"fail": 1} if n % 97 == 5 else {"dead": True} if n == 300 else {"n": n} for n in range(600)]
    for n, value in enumerate(values):
        calm.producer.produce(calm.topic("keyed_batches"), json.dumps(value).encode(), key=b"%d" % (n % 20))
    assert calm.producer.flush(30) == 0
    all_settled(calm, "keyed_batches", done=599, dead=1)
    in_order(calm, "keyed_batches")
    assert twice(calm, "keyed_batches") == {}


def test_messages_without_a_key_are_free_of_each_other(calm: Stack):
    placed = calm.produce("keyed", {"fail": 2}, *range(5))
    eventually(lambda: set(placed) <= set(calm.done("keyed")), 30)
    order = [where for where in calm.done("keyed") if where in placed]
    assert order[-1] == placed[0]


def test_a_partition_runs_one_message_at_a_time(calm: Stack):
    calm.produce("line", *range(5), {"fail": 2}, {"dead": True}, *range(5))
    all_settled(calm, "line", done=11, dead=1)
    in_order(calm, "line", by="partition")
    runs = calm.runs("line")
    assert [offset(run) for run in runs] == sorted(offset(run) for run in runs)
    for before, after in pairwise(runs):
        if before.outcome == "begun" and after.coordinates != before.coordinates:
            assert offset(before) == 6  # the dead one


@pytest.mark.slow
def test_without_a_limit_a_partition_blocks_in_place_until_it_can_go_on_and_says_so(calm: Stack, tmp_path: Path):
    gate = tmp_path / "open"
    placed = calm.produce("blocking", 1, {"until": str(gate)}, *range(12))
    eventually(lambda: len(calm.runs("blocking", placed[1])) >= 3, 30, "it is tried again and again")
    assert calm.done("blocking") == placed[:1]

    def waiting() -> list[dict[str, Any]]:
        (state,) = json_of(calm, "status")["bridges"].values()
        return [each for each in state["waiting"] if each["topic"] == calm.topic("blocking")]

    (waits,) = eventually(waiting, 20)
    assert (waits["partition"], waits["handler"], waits["offset"]) == (0, "blocking", 1)
    assert waits["seconds"] > 0
    assert placed[1] in command(calm, "status")
    gate.touch()
    all_settled(calm, "blocking", done=14)
    assert calm.done("blocking") == placed
