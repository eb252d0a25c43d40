"""A whole worker is killed: what it ran is told from what it merely held, and the message that kills is found."""

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.processes import Run, Served, Stack, eventually

SOON: dict[str, Any] = {"CELERY_CONFIG_MODULE": "tests.handlers.soon_lost"}


def begun(stack: Stack) -> Counter[tuple[str, str]]:
    return Counter((run.handler, run.coordinates) for run in stack.runs() if run.outcome == "begun")


def over(victim: Served, stack: Stack) -> bool:
    return victim.exit_code is not None or bool(stack.dead_letters("orders"))


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_a_killed_worker_had_only_prefetched_counts_nothing_and_what_it_ran_one_lost_process(
    innocents: Stack, pool: str
):
    victim = innocents.worker("-c", "2", "-P", pool, "--prefetch-multiplier=4", **SOON)
    innocents.bridge()
    produced = innocents.produce("orders", *({"seconds": 1, "only": "one"} for _ in range(8)))
    eventually(lambda: len(begun(innocents)) >= 2 and len(innocents.held_ids()) > 4, 20)
    # What has begun is told within a tenth of a second.
    time.sleep(0.2)
    victim.kill()
    held = begun(innocents)
    ended = {(run.handler, run.coordinates) for run in innocents.runs() if run.outcome == "done"}
    killed = time.time()
    innocents.worker("-c", "4", **SOON)
    eventually(lambda: len(innocents.done()) >= 3 * len(produced), 40)
    again = [run for run in innocents.runs() if run.time > killed and run.outcome == "begun"]
    for run in again:
        whole = (run.handler, run.coordinates)
        assert run.attempts["failed"] == 0
        # Of a batch it is not known who was running: each is innocent, and runs alone.
        lost = whole in held and run.handler != "many"
        assert run.attempts["lost"] == lost or whole in ended
    assert max(begun(innocents).values()) == 2
    assert {count for whole, count in begun(innocents).items() if whole not in held} == {1}
    first = min(run.time for run in again)
    assert max(run.time for run in again) - first < 20


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_message_that_kills_whole_workers_is_found_and_no_neighbour_is_buried(innocents: Stack, pool: str):
    environ = {**SOON, "CELERY_CONFIG_MODULE": "tests.handlers.few_workers"}
    innocents.bridge()
    produced = innocents.produce(
        "orders", *({"n": n} for n in range(5)), {"kills_all": "one"}, *({"n": n} for n in range(5))
    )
    workers = 0
    while not innocents.dead_letters("orders"):
        victim = innocents.worker("-c", "2", "-P", pool, wait=False, **environ)
        eventually(partial(over, victim, innocents), 30)
        workers += victim.exit_code is not None
        assert workers <= 6
    letters = innocents.dead("orders", 1, 20)
    assert [letter.origin for letter in letters] == [produced[5]]
    assert letters[0].ours["reason"] == "poison"
    eventually(
        lambda: len({(run.handler, run.coordinates) for run in innocents.runs() if run.outcome == "done"}) == 32, 20
    )


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_message_that_takes_its_time_to_kill_its_workers_takes_no_neighbour_along_for_good(innocents: Stack):
    environ = {**SOON, "CELERY_CONFIG_MODULE": "tests.handlers.few_workers"}
    innocents.bridge()
    culprit, innocent = innocents.produce("orders", {"kills_all": "one", "takes": {"one": 11}}, {"takes": {"one": 25}})
    while not innocents.dead_letters("orders"):
        victim = innocents.worker("-c", "2", **environ)
        eventually(partial(over, victim, innocents), 60, "it takes the worker down, whoever is beside it")
    assert [letter.origin for letter in innocents.dead("orders", 1, 20)] == [culprit]
    eventually(lambda: innocent in innocents.done("one"), 40)
    assert begun(innocents)["one", innocent] <= 3
    assert begun(innocents)["one", culprit] == 3


@pytest.mark.slow
def test_of_a_batch_that_takes_its_whole_worker_down_the_one_that_kills_is_buried_and_no_other(innocents: Stack):
    environ = {**SOON, "CELERY_CONFIG_MODULE": "tests.handlers.few_workers"}
    produced = innocents.produce("orders", *({"kills_all": "many"} if n == 7 else {"n": n} for n in range(20)))
    innocents.bridge()
    eventually(innocents.waiting, 20, "a batch is handed off, before anybody takes it")
    workers = 0
    while not innocents.dead_letters("orders"):
        victim = innocents.worker("-c", "2", wait=False, **environ)
        eventually(partial(over, victim, innocents), 40)
        workers += victim.exit_code is not None
        # Nobody knows who of the batch ran; each of the rest runs alone from then on, and counts for itself.
        assert workers <= 5
    (letter,) = innocents.dead("orders", 1, 20)
    assert (letter.origin, letter.ours["reason"]) == (produced[7], "poison")
    eventually(
        lambda: (
            {name: len(set(innocents.done(name))) for name in ("auto", "many", "one")}
            == {"auto": 20, "many": 19, "one": 20}
        ),
        30,
        "all others are done",
    )
    assert len(innocents.dead_letters("orders")) == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_machine_that_is_lost_costs_less_than_a_minute_by_default_and_nothing_that_is_alive_runs_twice(
    innocents: Stack,
):
    lost_bridge, _ = innocents.bridge(), innocents.bridge()
    lost, _ = (innocents.worker("-c", "2", "--prefetch-multiplier=1") for _ in range(2))
    # Each of the four processes has one, for longer than a dead worker is waited for.
    innocents.produce("orders", *({"takes": {"one": 35}} for _ in range(4)))
    eventually(lambda: len([which for which in begun(innocents) if which[0] == "one"]) == 4, 30)
    # Nobody is left to say anything: neither a parent of its child, nor a bridge of its partitions.
    lost_bridge.kill()
    lost.kill()
    killed = time.time()
    (after,) = innocents.produce("orders", {"n": 1})

    def runs() -> list[Run]:
        return [run for run in innocents.runs("one") if run.outcome == "begun" and run.coordinates != after]

    eventually(lambda: len(runs()) == 6, 70, "its two run again")
    assert max(run.time for run in runs()) - killed < 60
    eventually(lambda: len(set(innocents.done("one"))) == 5, 60)
    # Two were with the lost machine; those of the living one, which took as long, have run once.
    assert sorted(Counter(run.coordinates for run in runs()).values()) == [1, 1, 2, 2]
    assert innocents.dead_letters("orders") == []
