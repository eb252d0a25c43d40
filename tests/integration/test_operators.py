"""Two operators, each with a process, at the same letters at once: each goes once; who was slower is told who."""

import json
import sys
from collections import Counter
from typing import Any

import pytest

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import EditRefused
from bridge.formats.retry_record import read_retry_key
from tests.delivery_checks import choose, twice
from tests.desk_of_stack import desk, record
from tests.integration.test_replay import statuses
from tests.processes import Process, Run, Stack, eventually

#: On both databases.
pytestmark = [pytest.mark.usefixtures("desk_url"), pytest.mark.slow, pytest.mark.timeout(300)]
CHARGE = "tests.handlers.mended.charge"
COMPLETION = {"commit": "completion"}
LETTERS = 60
#: So many a second: both are at it for longer than the one is ahead of the other.
OPTIONS = PlanOptions(rate=40.0)
#: What `charge` takes, and it did not take the value before.
MENDED = '[{"op": "replace", "path": "/bad", "value": false}]'


def started(stack: Stack, letters: int) -> None:
    """A bridge and a worker, in which so many have died."""
    choose(stack, {"orders": COMPLETION})
    stack.environ |= {"HANDLERS": "tests.handlers.mended", "KAFKA_HANDLERS_VERSION": "1"}
    stack.make_topics("orders")
    worker = stack.worker(wait=False)
    stack.bridge()
    stack.produce("orders", *({"amount": number, "bad": True} for number in range(letters)))
    eventually(lambda: len(stack.records("orders.dlq")) == letters, 60, "all have died")
    # What is sent back stays as it is until all has been sent.
    worker.terminate()


def applied(stack: Stack, *made: BulkPlan) -> list[dict[str, Any]]:
    """Each plan applied by a process of its own, all at once; what each printed."""
    gate = stack.folder / "gate"
    words = ("-m", "bridge", "deadletters", "plans", "apply")
    running: list[Process] = [
        stack.start(
            f"apply-{plan.id}",
            sys.executable,
            *words,
            str(plan.id),
            "--yes",
            "--json",
            HANDLERS="tests.handlers.plan_gated",
            TEST_GATE=str(gate),
        )
        for plan in made
    ]
    for each in running:
        each.says("waits for the gate", 90)
    gate.touch()
    for each in running:
        assert each.ends(90) == 0, each.text
    return [json.loads(each.text[each.text.index("{") :]) for each in running]


def plan_of(here: DeadLetterService, what: str, by: str) -> BulkPlan:
    if what == "edit":
        return here.mending.patch(LetterFilter(handlers=(CHARGE,)), ValuePatch.read(MENDED), OPTIONS, by, force=True)
    return here.plans.make(PlanKind(what), LetterFilter(handlers=(CHARGE,)), OPTIONS, by, "as two wanted it")


@pytest.mark.parametrize("other", ["replay", "discard", "edit", "archive"])
def test_each_letter_is_one_operators_and_the_slower_one_is_told_whose_and_what_became_of_it(stack: Stack, other: str):
    started(stack, LETTERS)
    with desk(stack, CHARGE, orders=COMPLETION) as here:
        record(stack, here, "orders", LETTERS)
        plans = [plan_of(here, "replay", "ann"), plan_of(here, other, "bob")]
        ends = applied(stack, *plans)
        ended = [here.plans.one(plan.id) for plan in plans]
        skipped = [plan.count(PlanItemState.SKIPPED) for plan in ended]
        assert sum(skipped) == LETTERS, ended
        assert min(skipped) > 0, "one was over before the other began: nothing was shown"
        by = ((plans[1], "bob", other), (plans[0], "ann", "replay"))
        for told, left, (plan, who, what) in zip(ends, skipped, by, strict=True):
            become = {"discard": "discarded by now", "archive": "archived by now"}.get(what, "replaying already")
            why = f"it is {become}, by plan {plan.id} of {who}"
            assert told["left_out"] == [{"state": "skipped", "why": why, "letters": left}]
        stays = {"discard": "discarded", "archive": "archived"}.get(other, "replaying")
        wanted = Counter({"replaying": skipped[1]}) + Counter({stays: skipped[0]})
        assert statuses(here) == wanted
    sent = Counter(read_retry_key(each) for each in stack.records("orders.replay"))
    assert set(sent.values()) == {1}
    assert len(sent) == (LETTERS if stays == "replaying" else skipped[1])
    if other == "edit":
        values = Counter(json.loads(each.value() or b"")["bad"] for each in stack.records("orders.replay"))
        assert values == {True: skipped[1], False: skipped[0]}


def test_of_one_who_edits_a_letter_and_one_who_replays_it_as_it_is_the_faster_ones_value_goes_and_is_shown(
    stack: Stack,
):
    started(stack, 3)
    with desk(stack, CHARGE, orders=COMPLETION) as here:
        record(stack, here, "orders", 3)
        own = [json.loads(each.value() or b"")["amount"] for each in stack.records("orders.dlq")]
        edited = {}
        for id_ in (1, 2, 3):
            edit = here.mending.edit(id_, b'{"amount": 100}', "ann", force=True)
            replay = here.plans.make(PlanKind.REPLAY, LetterFilter(ids=(id_,)), PlanOptions(), "bob", "")
            # One after another, in either order; and at once.
            groups = {1: [[edit], [replay]], 2: [[replay], [edit]], 3: [[edit, replay]]}[id_]
            ends = [end for group in groups for end in applied(stack, *group)]
            (won,) = [plan for plan in (edit, replay) if here.plans.one(plan.id).outcomes == {"sent": 1}]
            why = f"it is replaying already, by plan {won.id} of {won.by}"
            told = sorted((end["left_out"] for end in ends), key=len)
            assert told == [[], [{"state": "skipped", "why": why, "letters": 1}]]
            edited[id_] = won == edit
            shown = here.letters.one(id_)
            assert [(each.by, each.value) for each in shown.edits] == [("ann", b'{"amount": 100}')] * edited[id_]
        assert (edited[1], edited[2]) == (True, False)
        with pytest.raises(EditRefused, match=f"by plan {won.id} of {won.by}: only what is open"):
            here.mending.edit(3, b'{"amount": 5}', "eve", force=True)
        values = [json.loads(each.value() or b"")["amount"] for each in stack.records("orders.replay")]
        assert values == [100 if edited[id_] else own[id_ - 1] for id_ in (1, 2, 3)]
        stack.worker(KAFKA_HANDLERS_VERSION="2")
        eventually(lambda: sorted(run.value["amount"] for run in done(stack)) == sorted(values), 60)
    assert twice(stack, "charge") == {}


def done(stack: Stack) -> list[Run]:
    return [run for run in stack.runs("charge") if run.outcome == "done"]
