"""A message that kills its process, among hundreds that do no harm: they hardly notice."""

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.delivery_checks import choose
from tests.processes import Stack, eventually

HANDLERS = ("auto", "many", "one")


@pytest.mark.parametrize("by", ["kill", pytest.param("segfault", marks=pytest.mark.slow)])
def test_a_message_that_kills_its_process_costs_its_neighbours_nothing(innocents: Stack, by: str):
    culprits = {name: {"kills": name, "by": by} for name in HANDLERS}
    orders: list[Any] = [{"n": n} for n in range(300)]
    for at, culprit in zip((60, 150, 240), culprits.values(), strict=True):
        orders.insert(at, culprit)
    innocents.bridge()
    produced = innocents.produce("orders", *orders)
    eventually(lambda: innocents.waiting(), 20, "they are handed off, before anybody takes them")
    before = time.monotonic()
    innocents.worker()
    start = time.monotonic() - before
    letters = innocents.dead("orders", 3, 40)
    by_handler = {letter.ours["handler"].rpartition(".")[2]: letter for letter in letters}
    killed = {name: produced[orders.index(culprits[name])] for name in HANDLERS}
    assert {name: letter.origin for name, letter in by_handler.items()} == killed
    for letter in letters:
        ours = letter.ours
        assert (ours["reason"], ours["attempts"], ours["attempts_lost"]) == ("poison", "3", "3")
        assert ours["attempts_failed"] == "0"
    everything = {name: sorted(set(produced) - {killed[name]}) for name in HANDLERS}
    eventually(
        lambda: {name: sorted(innocents.done(name)) for name in HANDLERS} == everything, 15, "all are done, once"
    )
    # How long all 900 take is the machine's; that nobody waits for the culprits shows in that some are always done. A
    # process that was lost is begun anew beside that, in less than it takes to start the worker.
    times = sorted(run.time for run in innocents.runs() if run.outcome == "done")
    assert max(after - before for before, after in pairwise(times)) < 5 + 2 * start
    for name in HANDLERS:
        runs = Counter(run.coordinates for run in innocents.runs(name) if run.outcome == "begun")
        assert runs.pop(killed[name]) == 3
        assert max(runs.values()) <= 2
        assert sum(count - 1 for count in runs.values()) == 0  # what was done is known to the millisecond
        # What they have cost is nothing, as each of them sees.
        seen = [run for run in innocents.runs(name) if run.coordinates != killed[name]]
        assert {tuple(run.attempts.values()) for run in seen} == {(0, 0, 0, 0)}
    eventually(lambda: not innocents.held_ids() and not innocents.waiting(), 10)


@pytest.mark.slow
@pytest.mark.parametrize("park_after", [60, 0.5], ids=["by Celery", "by a retry topic"])
def test_lost_processes_count_on_where_it_is_put_off_in_between(innocents: Stack, park_after: float):
    choose(innocents, {}, kafka_park_after=park_after, kafka_retry_tiers=[1.0])
    innocents.environ["HANDLERS"] = "tests.handlers.innocents"
    innocents.bridge()
    (culprit, *_) = innocents.produce("orders", {"kills": "many", "by": "later"}, *({"n": n} for n in range(20)))
    innocents.worker()
    (letter,) = innocents.dead("orders", 1, 60)
    ours = letter.ours
    assert (letter.origin, ours["reason"]) == (culprit, "poison")
    assert (ours["attempts_lost"], ours["attempts_postponed"], ours["attempts"]) == ("3", "1", "4")
    assert len(innocents.records("orders.retry.1s")) == (park_after < 1)
