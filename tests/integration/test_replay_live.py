"""Live records beside a large replay: they do not wait for it."""

import statistics
import time
from pathlib import Path

import pytest

from bridge.deadletters.db.table_definitions import letters
from tests.desk_of_stack import desk, recorder, replay
from tests.integration.test_replay import COMPLETION, count, start
from tests.processes import Run, Stack, eventually

#: Of which each keeps a process busy for a while: many times what a live record may wait.
LETTERS = 600
TAKES = 0.02
#: Seconds between two live records, and parts of the replay's time that half of them, and most, may take.
EVERY = 0.05
HALF, MOST = 0.1, 0.25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_live_records_are_done_at_once_while_many_letters_go_back(stack: Stack, tmp_path: Path, desk_url: str):
    mended = tmp_path / "mended"
    start(stack, "orders")
    dead = set(stack.produce("orders", *[{"mend": str(mended), "sleep": TAKES}] * LETTERS))
    recorder(stack)
    with desk(stack, "orders", orders=COMPLETION) as here:
        eventually(lambda: count(here, letters) == LETTERS, 90, "all are recorded")
        mended.touch()
        plan = here.plans.approve(replay(here).id, "ann")
        eventually(lambda: again(stack, dead), 40, "the first goes back")
        came: dict[str, float] = {}
        while len(again(stack, dead)) < LETTERS:
            # Before it is written: it may be done before that is acknowledged.
            now = time.time()
            (place,) = stack.produce("orders", {"live": len(came)})
            came[place] = now
            time.sleep(EVERY)
        eventually(lambda: came.keys() <= set(stack.done("orders")), 30)
        eventually(lambda: here.plans.one(plan.id).outcomes == {"done": LETTERS}, 60)
    done = {run.coordinates: run.time for run in stack.runs("orders") if run.outcome == "done"}
    over = max(done[place] for place in dead)
    took = over - min(done[place] for place in dead)
    waited = sorted(done[place] - at for place, at in came.items() if at < over - took / 10)
    assert len(waited) > 20, "too few to tell"
    print(f"the replay took {took:.1f} s; live records {statistics.median(waited):.2f} s, at most {waited[-1]:.2f} s")
    assert statistics.median(waited) < HALF * took
    assert waited[len(waited) * 9 // 10] < MOST * took


def again(stack: Stack, dead: set[str]) -> list[Run]:
    """The letters that are done."""
    return [run for run in stack.runs("orders") if run.outcome == "done" and run.coordinates in dead]
