"""Killed (kill -9) between any two steps of what goes to topics of others: nothing is lost; what is twice is known.

Copies may be: nobody looks what of a batch is there already. Others' letters that go back to their source are not.
"""

from collections import Counter
from typing import Any

import pytest

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay import plan_runner
from bridge.deadletters.replay.copy_action import CopyTarget
from bridge.errors import CopyRefused, KafkaUnavailable
from tests.delivery_checks import choose, delete_topic
from tests.desk_of_stack import desk, record, replay
from tests.integration.test_replay import statuses
from tests.integration.test_replay_killed import apply_killed
from tests.processes import Stack, headers_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("desk_url"), pytest.mark.timeout(900)]
LETTERS = 12
OPTIONS = PlanOptions(rate=12.0)
STEPS = ("begun", "leased", "claiming", "claimed", "published", "noting", "noted", "done")
#: Kafka has a batch, and the database does not say so.
BETWEEN = ("published", "noting")


def lie_there(stack: Stack, here: DeadLetterService, first: int) -> None:
    """So many more letters as Spring Kafka writes them, of the topic `theirs`, recorded."""
    for number in range(first, first + LETTERS):
        of = [
            ("trace", b"\x00\xff"),
            ("kafka_dlt-original-topic", stack.topic("theirs").encode()),
            ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
        ]
        stack.produce("theirs.dlq", b"%d" % number, key=b"k", headers=of)
    record(stack, here, "theirs", first + LETTERS)


def gone_on_with(stack: Stack, here: DeadLetterService, plan: BulkPlan, step: str) -> BulkPlan:
    """A plan, applied by a process that dies at a step, and then by another."""
    apply_killed(stack, plan.id, step)
    # As if its lease had run out.
    with here.database.writing() as connection:
        connection.exec_driver_sql("UPDATE plans SET leased_until = 0 WHERE leased_until IS NOT NULL")
    if here.plans.one(plan.id).state is not PlanState.DONE:
        here.plans.apply(plan.id, "bob")
    return here.plans.one(plan.id)


def lying(stack: Stack, topic: str) -> Counter[Any]:
    """How often which value lies in a topic."""
    found = stack.records(topic)
    assert {(each.key(), headers_of(each)[0]) for each in found} == {(b"k", ("trace", b"\x00\xff"))}
    return Counter(int(each.value() or b"") for each in found)


@pytest.fixture
def theirs(stack: Stack) -> Stack:
    choose(stack, {})
    stack.make_topics("orders", "theirs", "theirs.dlq", "copies")
    return stack


@pytest.mark.parametrize("elsewhere", [False, True], ids=["to a topic", "to another address"])
def test_of_copies_each_is_there_and_twice_at_most_what_was_on_its_way(theirs: Stack, elsewhere: bool):
    to = CopyTarget(addresses=theirs.kafka) if elsewhere else None
    with desk(theirs) as here:
        lie_there(theirs, here, 0)
        before: Counter[Any] = Counter()
        for step in STEPS:
            plan = here.copies.plan(LetterFilter(), theirs.topic("copies"), to, OPTIONS, "ann")
            plan = gone_on_with(theirs, here, plan, step)
            assert plan.outcomes == {"done": LETTERS}, step
            now = lying(theirs, "copies")
            more = {number: now[number] - before[number] for number in range(LETTERS)}
            twice = [number for number, times in more.items() if times == 2]
            assert set(more.values()) <= {1, 2}, (step, more)
            assert bool(twice) == (step in BETWEEN), (step, more)
            assert statuses(here) == {LetterStatus.OPEN: LETTERS}
            before = now


def test_where_the_topic_of_copies_is_deleted_in_the_midst_that_is_said_and_it_goes_on_once_it_is_there_again(
    theirs: Stack, monkeypatch: pytest.MonkeyPatch
):
    # A minute of tries, of which each takes half a minute.
    monkeypatch.setattr(plan_runner, "TRY_FOR", 1.0)
    with desk(theirs) as here:
        lie_there(theirs, here, 0)
        plan = here.copies.plan(LetterFilter(), theirs.topic("copies"), None, PlanOptions(rate=2.0), "ann")

        def heard(now: BulkPlan) -> None:
            if now.count(PlanItemState.DONE) and theirs.has_topic("copies"):
                delete_topic(theirs, "copies")

        with pytest.raises(KafkaUnavailable, match=theirs.topic("copies")):
            here.plans.apply(plan.id, "ann", heard)
        with pytest.raises(CopyRefused, match=f"no topic '{theirs.topic('copies')}' in this Kafka: make it first"):
            here.plans.apply(plan.id, "ann")
        assert here.plans.one(plan.id).state is PlanState.FAILED
        theirs.make_topics("copies")
        assert here.plans.apply(plan.id, "ann").outcomes == {"done": LETTERS}
        assert statuses(here) == {LetterStatus.OPEN: LETTERS}


def test_of_others_letters_that_go_back_to_their_source_each_is_there_once(theirs: Stack):
    with desk(theirs) as here:
        for number, step in enumerate(STEPS, 1):
            lie_there(theirs, here, LETTERS * (number - 1))
            plan = gone_on_with(theirs, here, replay(here, rate=OPTIONS.rate), step)
            assert plan.outcomes == {"done": LETTERS}, step
            assert lying(theirs, "theirs") == dict.fromkeys(range(LETTERS * number), 1), step
            assert statuses(here) == {LetterStatus.RESOLVED: LETTERS * number}
