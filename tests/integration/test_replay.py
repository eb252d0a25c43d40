"""Letters go back by a plan: to the handler that failed and to no other, each once; and how they end is known."""

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import func, select

from bridge.deadletters.db import audit_rows
from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.delivery_checks import all_settled, choose, delete_topic, json_of, send_back, twice
from tests.delivery_checks import letters as dead_letters
from tests.desk_of_stack import desk, record, recorder, replay
from tests.processes import Served, Stack, eventually

#: On both databases.
pytestmark = pytest.mark.usefixtures("desk_url")
COMPLETION: dict[str, Any] = {"commit": "completion"}


def statuses(here: Any) -> dict[str, int]:
    """How many letters have which status."""
    with here.database.reading() as connection:
        rows = connection.execute(select(letters.c.status, func.count()).group_by(letters.c.status))
        return {row[0]: row[1] for row in rows}


def start(stack: Stack, *topics: str, settings: dict[str, Any] | None = None, **chosen: Any) -> Served:
    """A worker and a bridge, which is returned, with these topics."""
    choose(stack, {name: chosen.get(name, COMPLETION) for name in topics}, **(settings or {}))
    stack.make_topics(*topics)
    stack.worker(wait=False)
    return stack.bridge()


def counted(stack: Stack, topic: str) -> dict[str, list[int]]:
    """What `bridge status` has counted of each handler of a topic: handled, failed, dead and replayed."""
    found = [each for each in json_of(stack, "status")["counts"] if each["topic"] == stack.topic(topic)]
    whats = ("handled", "failed", "dead", "replayed")
    return {each["handler"]: [sum(each["hours"][what]) for what in whats] for each in found}


def count(here: Any, table: Any) -> int:
    with here.database.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def test_a_letter_goes_to_the_handler_that_failed_alone_and_is_resolved(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    (dead, *_) = stack.produce("odd", {"odd": {"mend": str(mended)}}, 1, 2, key=b"k")
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        record(stack, here, "odd", 1)
        plan = replay(here)
        assert (plan.state, plan.counts.letters, plan.counts.handlers) == (
            PlanState.PLANNED,
            1,
            {"odd": {"permanent": 1}},
        )
        mended.touch()
        plan = here.plans.apply(plan.id, "ann")
        assert plan.state is PlanState.DONE
        plan = here.plans.wait(plan.id)
        assert plan.outcomes == {"done": 1}
        assert plan.is_good
        assert statuses(here) == {"resolved": 1}
    all_settled(stack, "odd", done=6, letters=1)
    runs = [(run.handler, run.outcome) for run in stack.runs(coordinates=dead)]
    assert sorted(runs) == [("odd", "begun")] * 2 + [("odd", "done"), ("odd_too", "begun"), ("odd_too", "done")]
    counts = eventually(lambda: (counts := counted(stack, "odd"))["odd"] == [3, 1, 1, 1] and counts, 20)
    assert counts["odd_too"] == [3, 0, 0, 0]


def test_one_that_dies_again_is_open_again_with_both_failures_and_the_next_plan_says_so(stack: Stack):
    start(stack, "odd")
    stack.produce("odd", {"odd": {"dead": True}}, key=b"k")
    recorder(stack)
    with desk(stack, "odd", "odd_too", odd=COMPLETION) as here:
        eventually(lambda: count(here, letters) == 1, 60)
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert plan.outcomes == {"dead": 1}
        assert not plan.is_good
        assert statuses(here) == {"open": 1}
        shown = here.letters.one(1)
        assert [each.plan for each in shown.history][:1] == [plan.id]
        again = replay(here)
        assert again.counts.replayed == {"1": 1}
        assert any("died again after a replay" in warning for warning in again.counts.warnings)


@pytest.mark.slow
def test_of_two_operators_who_replay_the_same_letters_at_once_each_letter_is_sent_by_one(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(100)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 100)
        mended.touch()
        made = [replay(here, rate=400.0), replay(here, rate=400.0)]
        threads = [threading.Thread(target=here.plans.apply, args=(plan.id, "ann")) for plan in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = [here.plans.wait(plan.id) for plan in made]
        assert [plan.state for plan in ended] == [PlanState.DONE] * 2
        assert sum(plan.outcomes.get("done", 0) for plan in ended) == 100
        assert sum(plan.outcomes.get("skipped", 0) for plan in ended) == 100
        assert statuses(here) == {"resolved": 100}
    assert len(stack.records("many.replay")) == 100
    assert twice(stack, "many") == {}


@pytest.mark.slow
def test_of_two_who_replay_and_discard_the_same_letters_at_once_each_letter_has_one_end(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(60)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 60)
        mended.touch()
        discard = here.plans.make(PlanKind.DISCARD, LetterFilter(), PlanOptions(rate=40.0), "bob", "test orders")
        made = [replay(here, rate=40.0), discard]
        threads = [threading.Thread(target=here.plans.apply, args=(plan.id, "ann")) for plan in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = [here.plans.wait(plan.id) for plan in made]
        done, gone = (plan.count(PlanItemState.DONE, PlanItemState.DISCARDED) for plan in ended)
        assert done + gone == 60
        assert [plan.count(PlanItemState.SKIPPED) for plan in ended] == [gone, done]
        assert statuses(here) == {name: many for name, many in (("resolved", done), ("discarded", gone)) if many}
    assert len(stack.done("many")) == len(set(stack.done("many"))) == done


@pytest.mark.slow
def test_where_the_replay_topic_is_deleted_what_lay_in_it_is_open_again_and_goes_back_anew(
    stack: Stack, tmp_path: Path
):
    mended = tmp_path / "mended"
    bridge = start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(5)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 5)
        mended.touch()
        # Nobody reads what is sent.
        bridge.kill()
        plan = here.plans.apply(replay(here).id, "ann")
        assert plan.outcomes == {"sent": 5}
        delete_topic(stack, "many.replay")
        plan = here.plans.wait(plan.id)
        assert plan.outcomes == {"unknown": 5}
        assert statuses(here) == {"open": 5}
        stack.bridge()
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert plan.outcomes == {"done": 5}
    assert twice(stack, "many") == {}


@pytest.mark.slow
def test_before_it_is_approved_it_is_known_what_is_done_too_large_and_too_old(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    stack.make_topics("many.replay", config={"max.message.bytes": "100000"})
    start(stack, "many")
    sizes = {"small": 10, "away": 5_000, "large": 200_000}
    stack.produce("many", *({"mend": str(mended), "id": name, "pad": "x" * size} for name, size in sizes.items()))
    with desk(stack, "many", many=COMPLETION) as here:
        # Above that the value is left in Kafka, and read there to be sent.
        here.settings.file.__dict__["kafka_deadletters_largest_value"] = 1_000
        record(stack, here, "many", 3)
        mended.touch()
        small, away, _ = sorted(dead_letters(stack, "many", 3), key=lambda each: len(each.value or b""))
        send_back(stack, "many", small)
        eventually(lambda: len(stack.done("many")) == 1, 60)
        plan = replay(here)
        assert (plan.counts.letters, plan.counts.done, plan.counts.too_large, plan.counts.too_old) == (3, 1, 1, 0)
        plan = here.plans.wait(here.plans.apply(plan.id, "ann").id)
        assert plan.outcomes == {"done": 2, "refused": 1}
        assert statuses(here) == {"resolved": 2, "open": 1}
        assert len(stack.done("many")) == len(set(stack.done("many"))) == 2
        assert away.value in [each.value() for each in stack.records("many.replay")]
        # Kafka drops the only copy of the last value.
        cut = TopicPartition(stack.topic("many.dlq"), 0, 3)
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        (deleted,) = admin.delete_records([cut]).values()
        deleted.result(10)
        plan = replay(here)
        assert (plan.counts.letters, plan.counts.too_old) == (1, 1)
        assert here.plans.apply(plan.id, "ann").outcomes == {"refused": 1}
        assert statuses(here) == {"resolved": 2, "open": 1}


@pytest.mark.slow
def test_one_that_is_stopped_leaves_the_rest_as_it_is_and_goes_on_where_it_was(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(60)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 60)
        mended.touch()
        # So slowly that most is left, however long a busy machine takes to stop it.
        plan = replay(here, rate=4.0)
        thread = threading.Thread(target=here.plans.apply, args=(plan.id, "ann"))
        thread.start()
        eventually(lambda: here.plans.one(plan.id).count(PlanItemState.SENT, PlanItemState.DONE) >= 5, 60)
        here.plans.stop(plan.id, "bob", "the bank asked")
        thread.join(60)
        assert not thread.is_alive()
        plan = here.plans.wait(plan.id)
        assert (plan.state, plan.stopped) == (PlanState.STOPPED, "stopped by bob: the bank asked")
        assert plan.outcomes["waiting"] > 30
        assert statuses(here) == {"resolved": plan.outcomes["done"], "open": plan.outcomes["waiting"]}
        with here.database.writing() as connection:
            connection.exec_driver_sql("UPDATE plans SET options = '{}'")
        plan = here.plans.wait(here.plans.apply(plan.id, "ann").id)
        assert plan.outcomes == {"done": 60}
        with here.database.reading() as connection:
            told = [(each.by, each.what) for each in audit_rows.read_history(connection, plan_id=plan.id)]
        assert told == [("ann", "replay"), ("ann", "apply"), ("bob", "stop"), ("ann", "apply")]
    assert len(stack.records("many.replay")) == 60


@pytest.mark.slow
def test_a_canary_whose_first_waves_end_badly_leaves_the_others_untouched(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    bad = ({"dead": number == 4, "mend": str(mended), "id": number} for number in range(50))
    stack.produce("many", *bad)
    recorder(stack)
    with desk(stack, "many", many=COMPLETION) as here:
        eventually(lambda: count(here, letters) == 50, 60)
        mended.touch()
        plan = here.plans.apply(replay(here, canary=True).id, "ann")
        assert (plan.state, plan.wave) == (PlanState.STOPPED, 1)
        assert plan.stopped == "canary: 1 of 5 of wave 2 died again"
        # It stops as soon as one is known to be dead: others of its wave may be on their way still.
        plan = here.plans.wait(plan.id)
        assert plan.outcomes == {"done": 5, "dead": 1, "waiting": 44}
        assert statuses(here) == {"resolved": 5, "open": 45}
    assert len(stack.records("many.replay")) == 6


@pytest.mark.slow
def test_a_canary_whose_waves_end_well_sends_all(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(40)))
    with desk(stack, "many", many=COMPLETION) as here:
        record(stack, here, "many", 40)
        mended.touch()
        plan = here.plans.wait(here.plans.apply(replay(here, canary=True).id, "ann").id)
        assert (plan.state, plan.wave, plan.outcomes) == (PlanState.DONE, 3, {"done": 40})


@pytest.mark.slow
def test_what_was_approved_is_done_in_the_background_by_the_recorder(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many")
    stack.produce("many", *({"mend": str(mended), "id": number} for number in range(5)))
    recorder(stack)
    with desk(stack, "many", many=COMPLETION) as here:
        eventually(lambda: count(here, letters) == 5, 60)
        mended.touch()
        plan = replay(here)
        here.plans.approve(plan.id, "ann")
        eventually(lambda: here.plans.one(plan.id).outcomes == {"done": 5}, 60)
        assert here.plans.one(plan.id).state is PlanState.DONE


@pytest.mark.slow
@pytest.mark.parametrize("commit", ["completion", "handoff"])
def test_while_redis_is_wiped_nothing_is_lost_and_the_outcomes_are_known_or_said_unknown(
    stack: Stack, tmp_path: Path, commit: str
):
    mended, held = tmp_path / "mended", tmp_path / "held"
    chosen = {"commit": commit}
    start(stack, "many", settings={"kafka_stuck_after": 5}, many=chosen)
    stack.produce("many", *({"mend": str(mended), "hold": str(held), "id": number} for number in range(10)))
    held.touch()
    recorder(stack)
    with desk(stack, "many", many=chosen) as here:
        here.settings.file.__dict__["kafka_stuck_after"] = 5.0
        eventually(lambda: count(here, letters) == 10, 60)
        held.unlink()
        mended.touch()
        plan = here.plans.apply(replay(here).id, "ann")
        eventually(lambda: [run for run in stack.runs("many") if run.outcome == "begun"][10:], 60, "one is begun")
        with stack.redis() as client:
            client.flushdb()
        held.touch()
        plan = here.plans.wait(plan.id)
        assert plan.count(PlanItemState.DONE, PlanItemState.UNKNOWN) == 10
        assert statuses(here) == {
            name: number
            for name, number in (
                ("resolved", plan.count(PlanItemState.DONE)),
                ("replaying", plan.count(PlanItemState.UNKNOWN)),
            )
            if number
        }
        if commit == "completion":
            assert plan.outcomes == {"done": 10}
            assert len(set(stack.done("many"))) == 10
