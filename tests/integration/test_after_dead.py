"""With `after_dead="hold"` a dead letter holds what is behind it in its order until it is replayed or discarded."""

from pathlib import Path
from typing import Any

import pytest

from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.delivery_checks import json_of
from tests.desk_of_stack import desk, recorder, replay
from tests.integration.test_replay import count, start
from tests.processes import Stack, eventually

#: On both databases. Those of a dead letter's batch look for it every minute, behind a recorder and two restarts.
pytestmark = [pytest.mark.usefixtures("desk_url"), pytest.mark.timeout(300)]
HOLD = {"commit": "completion", "order": "key", "after_dead": "hold"}


def done(stack: Stack, topic: str, key: bytes) -> list[str]:
    """What is done of a key, in the order in which it ended."""
    return [run.coordinates for run in stack.runs(topic) if run.outcome == "done" and run.key == key]


@pytest.mark.parametrize(
    ("topic", "ends"),
    [
        ("keyed", [PlanKind.REPLAY]),
        ("keyed", [PlanKind.ARCHIVE, PlanKind.DISCARD]),
        ("keyed_batches", [PlanKind.REPLAY]),
        ("keyed_batches", [PlanKind.DISCARD]),
    ],
)
def test_what_is_behind_a_dead_letter_waits_through_restarts_and_goes_out_in_order_once_it_has_ended(
    stack: Stack, tmp_path: Path, topic: str, ends: list[PlanKind]
):
    mended, settings = tmp_path / "mended", {topic: HOLD}
    start(stack, topic, **settings)
    letter: dict[str, Any] = {"mend": str(mended)}
    stack.produce(topic, {"id": 0}, key=b"a")
    a = stack.produce(topic, letter, *({"id": number} for number in range(5)), key=b"a")
    b = stack.produce(topic, *({"id": number} for number in range(5)), key=b"b")
    recorder(stack)
    with desk(stack, topic, **settings) as here:
        eventually(lambda: count(here, letters) == 1, 40, "it is recorded")
        eventually(lambda: done(stack, topic, b"b") == b, 30, "another key goes on")
        for process in stack._processes:
            if process.name in ("bridge", "worker"):
                process.kill()
        stack.bridge()
        stack.worker()
        (further,) = stack.produce(topic, {"id": 9}, key=b"a")
        (other,) = stack.produce(topic, {"id": 9}, key=b"b")
        eventually(lambda: done(stack, topic, b"b") == [*b, other], 40)
        assert len(done(stack, topic, b"a")) == 1
        eventually(lambda: stack.committed(topic) == 1, 20, "and not what is done behind it")
        for waiting in (a[1], further):
            (delivery,) = json_of(stack, "find", waiting)["deliveries"]
            assert delivery["held_by"]["record"] == a[0]
        eventually(lambda: any(" the order, since " in each for each in json_of(stack, "status")["problems"]), 40)

        mended.touch()
        if ends == [PlanKind.REPLAY]:
            plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
            assert plan.outcomes == {"done": 1}
        else:
            for end in ends:
                draft = here.plans.make(end, LetterFilter(ids=(1,)), PlanOptions(), "ann", "a look")
                assert here.plans.wait(here.plans.apply(draft.id, "ann").id).counts.letters == 1
        left = [*(a if ends == [PlanKind.REPLAY] else a[1:]), further]
        # Those of its batch look for it up to a minute later.
        eventually(lambda: done(stack, topic, b"a")[1:] == left, 120, "in their order")
    eventually(lambda: stack.committed(topic) == 14, 20)
