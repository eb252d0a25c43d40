"""Replays of letters of ordered topics and sequences, for all handlers, and of other programs."""

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.delivery_checks import all_settled, audit
from tests.desk_of_stack import desk, record, recorder, replay
from tests.integration.test_replay import COMPLETION, count, start, statuses
from tests.processes import Stack, eventually

#: On both databases.
pytestmark = pytest.mark.usefixtures("desk_url")
KEYED = {"commit": "completion", "order": "key"}
STEPS = tuple(f"tests.handlers.fates.{name}" for name in ("first", "second", "third"))


def test_letters_of_a_key_are_sent_in_the_order_in_which_they_were_produced(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "keyed", keyed=KEYED)
    stack.produce("keyed", *({"mend": str(mended), "id": number} for number in range(10)), key=b"k")
    with desk(stack, "keyed", keyed=KEYED) as here:
        record(stack, here, "keyed", 10)
        mended.touch()
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert plan.outcomes == {"done": 10}
    sent = [json.loads(each.value() or b"")["id"] for each in stack.records("keyed.replay")]
    assert sent == list(range(10))


@pytest.mark.slow
def test_what_is_discarded_lets_its_key_go_on_and_is_not_run_when_it_is_sent_back_all_the_same(stack: Stack):
    start(stack, "keyed", keyed=KEYED)
    (dead, *others) = stack.produce("keyed", {"dead": True}, 1, 2, key=b"k")
    with desk(stack, "keyed", keyed=KEYED) as here:
        record(stack, here, "keyed", 1)
        earlier = replay(here)
        plan = here.plans.make(PlanKind.DISCARD, LetterFilter(), PlanOptions(), "ann", "a test order")
        assert here.plans.apply(plan.id, "ann").outcomes == {"discarded": 1}
        assert statuses(here) == {"discarded": 1}
        assert here.plans.apply(earlier.id, "bob").outcomes == {"skipped": 1}
        more = stack.produce("keyed", 3, key=b"k")
        eventually(lambda: {*others, *more} <= set(stack.done("keyed")), 60)
    assert dead not in stack.done("keyed")


@pytest.mark.slow
def test_in_a_sequence_it_goes_on_from_there(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    chosen = {"commit": "completion", "order": "key", "sequence": STEPS}
    start(stack, "steps", steps=chosen)
    (dead, other) = stack.produce("steps", {"second": {"mend": str(mended)}}, 1, key=b"k")
    with desk(stack, *STEPS, steps=chosen) as here:
        record(stack, here, "steps", 1)
        mended.touch()
        plan = here.plans.wait(here.plans.apply(replay(here, all_handlers=True).id, "ann").id)
        assert plan.outcomes == {"done": 1}
        eventually(lambda: {dead, other} <= set(stack.done("third")), 60)
    all_settled(stack, "steps", done=6, letters=1)


def test_for_all_handlers_what_is_done_is_not_run_again(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    (dead,) = stack.produce("odd", {"odd": {"mend": str(mended)}}, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 1)
        mended.touch()
        plan = replay(here, all_handlers=True)
        assert plan.outcomes == {"waiting": 2}
        plan = here.plans.wait(here.plans.apply(plan.id, "ann").id)
        assert plan.outcomes == {"done": 1, "skipped": 1}
    assert [run.outcome for run in stack.runs("odd_too", dead)] == ["begun", "done"]


@pytest.mark.slow
def test_for_all_handlers_what_the_ledger_has_forgotten_is_not_run_again(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    (dead,) = stack.produce("odd", {"odd": {"mend": str(mended)}}, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 1)
        all_settled(stack, "odd", done=1, dead=1)
        # As where its pages have expired.
        with stack.redis() as client:
            client.delete(*client.keys("ledger:*:fates:*"))
        mended.touch()
        plan = here.plans.apply(replay(here, all_handlers=True).id, "ann")
        assert plan.count(PlanItemState.SKIPPED) == 1
        eventually(lambda: dead in stack.done("odd"), 60)
    assert [run.outcome for run in stack.runs("odd_too", dead)] == ["begun", "done"]


@pytest.mark.slow
def test_for_all_handlers_what_redis_lost_on_its_way_is_said_to_be_unknown_and_not_waited_for(
    stack: Stack, tmp_path: Path
):
    dies, handoff = tmp_path / "dies", {"commit": "handoff"}
    start(stack, "odd", odd=handoff)
    never = str(tmp_path / "never")
    stack.produce("odd", {"odd": {"mend": never}, "odd_too": {"hold": str(dies), "mend": never}})
    with desk(stack, "odd", "odd_too", odd=handoff) as here:
        here.settings.file.__dict__["kafka_stuck_after"] = 5.0
        record(stack, here, "odd", 1)
        # This one is not recorded, and is sent as another handler's.
        dies.touch()
        stack.dead("odd", 2)
        eventually(lambda: audit(stack, "odd")["dead"] == 2, 20)
        plan = replay(here, all_handlers=True)
        (worker,) = [process for process in stack._processes if process.name == "worker"]
        worker.kill()
        plan = here.plans.apply(plan.id, "ann")
        assert plan.outcomes == {"sent": 2}
        eventually(lambda: stack.committed("odd.replay") == 2, 30)
        with stack.redis() as client:
            client.flushdb()
        # What has no letter must be known to have none.
        recorder(stack)
        assert here.plans.wait(plan.id).outcomes == {"unknown": 2}
        # Nothing proves that they did not run.
        assert statuses(here) == {"replaying": 1, "open": 1}


@pytest.mark.slow
def test_for_all_handlers_on_an_ordered_topic_each_has_them_in_order(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd", odd=KEYED)
    places = stack.produce("odd", *({"mend": str(mended), "id": number} for number in range(3)), key=b"k")
    with desk(stack, "odd", "odd_too", odd=KEYED) as here:
        record(stack, here, "odd", 6)
        mended.touch()
        plan = replay(here, LetterFilter(handlers=("odd",)), all_handlers=True)
        assert plan.outcomes == {"waiting": 6}
        plan = here.plans.wait(here.plans.apply(plan.id, "ann").id)
        assert plan.outcomes == {"done": 6}
    assert stack.done("odd") == stack.done("odd_too") == places
    all_settled(stack, "odd", done=6, letters=6)


@pytest.mark.slow
def test_for_all_handlers_one_that_has_a_letter_too_is_sent_once(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    stack.produce("odd", {"mend": str(mended)}, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 2)
        mended.touch()
        plan = replay(here, LetterFilter(handlers=("odd",)), all_handlers=True)
        assert plan.outcomes == {"waiting": 2}
        plan = here.plans.wait(here.plans.apply(plan.id, "ann").id)
        assert plan.outcomes == {"done": 2}
        assert statuses(here) == {"resolved": 2}
    all_settled(stack, "odd", done=2, letters=2)


@pytest.mark.slow
def test_a_letter_of_a_handler_that_nobody_knows_is_skipped(stack: Stack):
    start(stack, "odd")
    stack.produce("odd", {"odd": {"dead": True}}, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 1)
    for process in stack._processes:
        process.kill()
    with stack.redis() as client:
        client.flushdb()
    with desk(stack, "odd_too", odd=COMPLETION) as here:
        plan = replay(here)
        assert plan.counts.unknown_handlers == {"odd": 1}
        assert here.plans.apply(plan.id, "ann").outcomes == {"skipped": 1}
        assert statuses(here) == {"open": 1}


@pytest.mark.slow
def test_letters_of_other_programs_go_to_their_topic_with_a_warning_of_who_reads_it(stack: Stack):
    start(stack, "many")
    stack.make_topics("theirs", "theirs-dlt")
    headers = [
        ("kafka_dlt-original-topic", stack.topic("theirs").encode()),
        ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", (7).to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"shop"),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ("trace", b"1"),
    ]
    (place,) = stack.produce("theirs-dlt", {"id": 7}, key=b"k", headers=headers)
    stack.produce("theirs", {"id": 1})
    with stack._reader(f"{stack.prefix}.shop") as reader:
        reader.commit(offsets=[TopicPartition(stack.topic("theirs"), 0, 1)], asynchronous=False)
    started = recorder(stack, "--topics", stack.topic("theirs-dlt"))
    with desk(stack, "many", many=COMPLETION) as here:
        eventually(lambda: count(here, letters) == 1, 60)
        plan = replay(here)
        assert plan.counts.foreign == 1
        assert f"{stack.prefix}.shop" in " ".join(plan.counts.warnings)
        plan = here.plans.apply(plan.id, "ann")
        assert (plan.state, plan.outcomes) == (PlanState.DONE, {"done": 1})
        assert statuses(here) == {"resolved": 1}
    assert started.exit_code is None
    (_, back) = stack.records("theirs")
    assert (back.key(), json.loads(back.value() or b"")) == (b"k", {"id": 7})
    assert back.headers() == [("trace", b"1"), ("dead_letter", place.encode())]


def test_of_other_programs_letters_what_cannot_go_back_stays_and_holds_up_no_other(stack: Stack):
    start(stack, "many")
    stack.make_topics("theirs", config={"cleanup.policy": "compact"})
    stack.make_topics("theirs-dlt")

    def spring(offset: int) -> list[tuple[str, bytes]]:
        return [
            ("kafka_dlt-original-topic", stack.topic("theirs").encode()),
            ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ]

    share = [("__dlq.errors.topic", stack.topic("theirs").encode()), ("__dlq.errors.partition", b"0")]
    stack.produce("theirs-dlt", {"id": 0}, headers=spring(0))
    stack.produce("theirs-dlt", {"id": 1}, key=b"k", headers=spring(1))
    stack.produce("theirs-dlt", None, headers=[*share, ("__dlq.errors.offset", b"2")])
    stack.produce("theirs-dlt", {"id": 3}, key=b"k", headers=[("trace", b"1")])
    stack.produce("theirs-dlt", {"id": 4}, key=b"k", headers=spring(4))
    recorder(stack, "--topics", stack.topic("theirs-dlt"))
    with desk(stack, "many", many=COMPLETION) as here:
        eventually(lambda: count(here, letters) == 5, 60)
        mended = here.mending.edit(5, b"4", "ann", force=True)
        assert here.plans.apply(mended.id, "ann").outcomes == {"done": 1}
        plan = replay(here)
        assert any("1 letter of" in warning and "--to-topic" in warning for warning in plan.counts.warnings)
        # None without a key to a compacted topic; nothing that its letter does not have; none to no topic.
        assert here.plans.apply(plan.id, "ann").outcomes == {"done": 1, "refused": 2, "skipped": 1}
        assert statuses(here) == {"open": 3, "resolved": 2}
    assert [json.loads(each.value() or b"") for each in stack.records("theirs")] == [4, {"id": 1}]
