"""What is promised of letters of topics that have an order: of a lane one at a time, in the order of their offsets."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sqlalchemy import event, insert

from bridge.deadletters.db import plan_item_rows, plan_order_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.plan_order import find_course
from bridge.deadletters.replay import plan_runner
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import StillParked
from bridge.deadletters.replay.plan_action import ActionResult, ClaimedDelivery, TakenDeliveries
from bridge.deadletters.replay.plan_lanes import LaneRelease, is_message_on_its_way, lay_plan_lanes
from bridge.deadletters.replay.plan_runner import PlanRunner, RunnerHooks, name_this_process
from bridge.errors import KafkaUnavailable
from bridge.ledger import Fate
from bridge.settings import EnvironmentSettings, FileSettings, Settings, TopicSettings
from tests.desk.rows import kind, letter

COMPLETION = {"commit": "completion"}
TOPICS = {
    "orders": {**COMPLETION, "order": "key"},
    "line": {**COMPLETION, "order": "partition"},
    "steps": {**COMPLETION, "order": "key", "sequence": ("first", "second")},
    "odd": COMPLETION,
}


def settings(**topics):
    chosen = {name: TopicSettings.model_validate(each) for name, each in (topics or TOPICS).items()}
    return Settings(FileSettings(kafka_topics=chosen), EnvironmentSettings(), "memory://", {})


def record(database, topic, *keys, handler="orders.handlers.charge", start=0, partition=0):
    """Letters at the next offsets, with these keys."""
    with database.writing() as connection:
        one = kind(connection, handler, topic)
        return [
            letter(connection, one, at, key=key, key_digest=key_digest(key), partition=partition)
            for at, key in enumerate(keys, start)
        ]


def make(database, canary=False, what=PlanKind.REPLAY, **asked):
    with database.writing() as connection:
        plan_id, _ = plan_rows.add_plan(connection, what, "ann", "", {}, PlanOptions(canary=canary))
        plan_item_rows.freeze_letters(
            connection, plan_id, select_matching_letters(LetterFilter(**asked)), canary=canary
        )
    return plan_id


def plan_of(database, plan_id):
    with database.reading() as connection:
        plan = plan_rows.read_plan(connection, plan_id)
    assert plan is not None
    return plan


def lane_of(topic, partition, key):
    course = find_course(settings(), "bridge", topic, "orders.handlers.charge")
    assert course is not None
    return course.lane(partition, key_digest(key))


class World:
    """A plan that is applied, and handlers that run what it sends when they are told to."""

    def __init__(self, database, plan_id, chosen=None, outcomes=lambda: None):
        self.database, self.plan_id, self.sent, self.who = database, plan_id, [], name_this_process()
        self.skips = False
        with database.writing() as connection:
            assert plan_rows.lease_plan(connection, plan_id, self.who)
            lay_plan_lanes(connection, plan_id, chosen or settings())
        plan = plan_of(database, plan_id)
        around = RunnerHooks(outcomes, self.passed, lambda: None, lambda: False)
        self.applying = PlanRunner(database, plan, self, self.who, around)

    def passed(self):
        with self.database.reading() as connection:
            return [each.position for each in plan_order_rows.read_ended_items(connection, self.plan_id)]

    def take(self, connection, waiting, at):
        if self.skips:
            return TakenDeliveries([], {item.position: "it is gone" for item in waiting})
        return TakenDeliveries([ClaimedDelivery(item, LogPosition("orders.replay", 0, 0)) for item in waiting], {})

    def look(self, claimed):
        return ActionResult()

    def act(self, claimed, live):
        self.sent += [each.item.position for each in claimed]
        return ActionResult([SentRecord(each.item.position, 1, LogPosition("orders.replay", 0, 0)) for each in claimed])

    def settle(self, connection, claimed, acted, at):
        pass

    def goes(self):
        """What is sent by one claim."""
        before = len(self.sent)
        if claimed := self.applying._claim():
            self.applying._apply_batch(claimed)
        return self.sent[before:]

    def ends(self, *positions, state=PlanItemState.DONE):
        with self.database.writing() as connection:
            plan_item_rows._move_items(connection, self.plan_id, positions, [PlanItemState.SENT], state=state)

    def dies(self):
        with self.database.writing() as connection:
            plan_rows.release_plan(connection, self.plan_id, self.who)


A, B = b"a", b"b"


@pytest.fixture(autouse=True)
def restless(monkeypatch):
    monkeypatch.setattr(plan_runner, "REST", 0.0)


class Clock:
    """A clock that goes on when it is told to, in place of the runner's."""

    def __init__(self, monkeypatch):
        self.now = 1_000.0
        monkeypatch.setattr(plan_runner, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.mark.parametrize("end", ["done", "dead", "discarded", "unknown"])
def test_letters_of_a_key_go_one_at_a_time_each_after_the_one_before_has_ended(database, end):
    record(database, "orders", A, A, B, A, B)
    world = World(database, make(database))
    assert world.goes() == [1, 3]
    assert world.goes() == []
    world.ends(1, state=end)
    assert world.goes() == [2]
    world.ends(3)
    assert world.goes() == [5]
    assert world.goes() == []
    world.ends(5)
    assert world.goes() == []
    world.ends(2)
    assert world.goes() == [4]


def test_letters_without_a_key_and_of_topics_without_an_order_are_free(database):
    record(database, "orders", None, None, None)
    record(database, "odd", A, A, start=3)
    assert World(database, make(database)).goes() == [1, 2, 3, 4, 5]


def test_letters_of_a_partition_go_one_at_a_time_where_that_is_the_order(database):
    record(database, "line", A, None)
    record(database, "line", A, B, partition=1)
    world = World(database, make(database))
    assert world.goes() == [1, 2]
    world.ends(2)
    assert world.goes() == [4]


def test_handlers_do_not_wait_for_each_other_but_those_of_a_sequence(database):
    record(database, "orders", A, A, handler="one")
    record(database, "orders", A, handler="other", start=2)
    record(database, "steps", A, handler="second", start=3)
    record(database, "steps", A, handler="first", start=4)
    assert World(database, make(database)).goes() == [1, 3, 4]


def test_where_no_topic_has_an_order_nothing_has_a_lane(database):
    record(database, "orders", A, A)
    world = World(database, make(database), settings(orders={}))
    assert world.goes() == [1, 2]
    with database.reading() as connection:
        assert not plan_order_rows.has_lanes(connection, world.plan_id)


def test_who_goes_on_with_a_plan_finds_its_lanes_as_they_stand(database):
    record(database, "orders", A, A, A, B)
    plan_id = make(database)
    first = World(database, plan_id)
    assert first.goes() == [1, 4]
    first.ends(1)
    first.dies()
    second = World(database, plan_id)
    assert second.goes() == [2]
    second.dies()
    third = World(database, plan_id)
    assert third.goes() == []
    third.ends(2)
    assert third.goes() == [3]


def test_a_lasting_refusal_to_say_what_releases_lanes_ends_the_run_though_outcomes_are_read(database, monkeypatch):
    record(database, "orders", A, A)
    clock = Clock(monkeypatch)
    monkeypatch.setattr(World, "passed", Mock(side_effect=KafkaUnavailable("a partition has no leader")))
    world = World(database, make(database))
    assert world.goes() == [1]
    for _ in range(2):
        clock.now += plan_runner.TRY_FOR / 2
        assert world.goes() == []
        world.applying._look()
    clock.now += 1
    with pytest.raises(KafkaUnavailable):
        world.goes()


def test_what_releases_lanes_is_asked_less_often_the_longer_the_answer_takes(database, monkeypatch):
    record(database, "orders", A, A)
    clock, passed = Clock(monkeypatch), World.passed

    def take_long(world):
        clock.now += 3
        return passed(world)

    monkeypatch.setattr(plan_runner, "REST", 2.0)
    monkeypatch.setattr(World, "passed", take_long)
    world = World(database, make(database))
    assert world.goes() == [1]
    world.ends(1)
    clock.now += 5
    assert world.goes() == []
    clock.now += 1
    assert world.goes() == [2]


def test_the_lease_is_renewed_after_each_look_which_may_take_as_long(database, monkeypatch):
    def lease_until(at):
        with database.writing() as connection:
            connection.execute(tables.plans.update().values(leased_until=at))

    def leased_until():
        with database.reading() as connection:
            return connection.execute(tables.plans.select()).one().leased_until

    record(database, "orders", A)
    monkeypatch.setattr(plan_runner, "SHOW_EVERY", 0.0)
    world = World(database, make(database), outcomes=lambda: lease_until(0))
    world.applying._look()
    assert leased_until() > 0


def test_without_kafka_a_message_that_runs_again_holds_its_lane_for_an_hour_and_no_other_lane(database, monkeypatch):
    with database.writing() as connection:
        options = PlanOptions(again=True, logs={"0": "log"})
        plan_id, now = plan_rows.add_plan(connection, PlanKind.REDRIVE, "ann", "", {"topic": "steps"}, options)
        for position, (state, at) in enumerate([("done", now), ("done", now - 3_600_000), ("dead", now)], 1):
            item = {"plan_id": plan_id, "position": position, "state": state, "ended_at": at, "held": False}
            connection.execute(insert(tables.items).values({**item, "place": f"steps-0-{position}:first", "next": 9}))
    monkeypatch.setattr(StillParked, "find_parked", Mock(side_effect=KafkaUnavailable("a partition has no leader")))
    release = LaneRelease(settings(), database, plan_of(database, plan_id), LedgerFates(lambda _: None))
    assert sorted(release.passed()) == [2, 3]
    with database.writing() as connection:
        plan_order_rows.release_held_items(connection, plan_id, [2, 3])
    with pytest.raises(KafkaUnavailable):
        release.passed()


@pytest.mark.parametrize(
    ("fates", "died", "held"),
    [
        ([], [], False),
        ([Fate.DONE, Fate.DONE], [False, False], False),
        ([Fate.DEAD, Fate.DEAD], [False, False], True),
        ([Fate.DONE, Fate.DEAD], [False, False], True),
        ([Fate.DEAD, Fate.DEAD], [True, False], False),
        ([Fate.DONE, Fate.DEAD], [False, True], False),
        ([Fate.HANDED, Fate.DEAD], [True, False], True),
        ([Fate.PARKED, Fate.OPEN], [False, False], True),
        ([Fate.DONE, Fate.OPEN], [False, False], True),
        ([Fate.DISCARDED, Fate.DISCARDED], [False, False], False),
    ],
)
def test_in_a_sequence_a_message_holds_its_lane_until_it_is_through_or_has_died_further_on(fates, died, held):
    assert is_message_on_its_way(fates, died) is held


def test_lanes_that_lie_already_are_not_written_again(database):
    record(database, "orders", A, A, A, B)
    world = World(database, make(database))
    written = []
    event.listen(database._engine, "before_cursor_execute", lambda *said: written.append(said[2]))
    with database.writing() as connection:
        lay_plan_lanes(connection, world.plan_id, settings())
    assert not [each for each in written if each.startswith("UPDATE")]


def test_what_is_skipped_holds_nothing_up(database):
    record(database, "orders", A, A, A)
    world = World(database, make(database))
    world.skips = True
    assert world.applying._claim() is None
    world.skips = False
    assert world.goes() == [2]


def test_of_two_plans_one_at_a_time_has_a_letter_of_a_key_under_way(database):
    mine, his, free = record(database, "orders", A, A, B)
    one, other = (World(database, make(database, ids=ids)) for ids in [(his,), (mine, free)])
    assert one.goes() == [1]
    assert other.goes() == [2]
    assert other.goes() == []
    one.ends(1)
    assert other.goes() == [1]


def test_a_canary_has_no_letter_in_an_earlier_wave_than_one_before_it_of_its_key(database):
    record(database, "orders", A, B, A, B, A, A, B, A)
    record(database, "orders", A, A, A, partition=1)
    plan_id = make(database, canary=True)
    world = World(database, plan_id)
    with database.reading() as connection:
        columns = (tables.items.c.lane, tables.items.c.position, tables.items.c.wave, tables.letters.c.offset)
        joined = tables.items.join(tables.letters, tables.letters.c.id == tables.items.c.letter_id)
        rows = connection.execute(tables.items.select().with_only_columns(*columns).select_from(joined)).all()
    by_lane: dict[int, list[tuple[int, int]]] = {}
    for lane, _, wave, offset in sorted(rows, key=lambda row: row.position):
        by_lane.setdefault(lane, []).append((offset, wave))
    assert len(by_lane) == 3
    assert all(each == sorted(each) and sorted(w for _, w in each) == [w for _, w in each] for each in by_lane.values())
    assert world.goes() == [1]


def test_a_canary_waits_for_what_its_wave_holds_and_stops_where_one_before_it_dies(database):
    record(database, "orders", *[A] * 9)
    world = World(database, make(database, canary=True))
    assert world.goes() == [1]
    world.ends(1)
    world.applying._next_wave()
    assert world.goes() == [2]
    world.applying._next_wave()
    assert world.applying._wave == 1
    world.ends(2, state=PlanItemState.DEAD)
    world.applying._next_wave()
    plan = plan_of(database, world.plan_id)
    assert (plan.state, plan.outcomes) == (PlanState.STOPPED, {"done": 1, "dead": 1, "waiting": 7})


def test_a_plan_is_done_only_once_nothing_is_held(database):
    record(database, "orders", A, A)
    world = World(database, make(database))
    assert world.goes() == [1]
    world.applying._next_wave()
    assert plan_of(database, world.plan_id).state is PlanState.APPLYING
    world.ends(1, state=PlanItemState.DEAD)
    assert world.goes() == [2]
    world.applying._next_wave()
    assert plan_of(database, world.plan_id).state is PlanState.DONE


@pytest.mark.parametrize("key", [None, A, b"", b"\xff" * 9])
@pytest.mark.parametrize("topic", ["orders", "line"])
@pytest.mark.parametrize("partition", [0, 7, 100_000])
def test_sql_and_python_give_one_lane(database, topic, key, partition):
    record(database, topic, key, partition=partition)
    world = World(database, make(database))
    with database.reading() as connection:
        found = connection.execute(tables.items.select()).one().lane
    assert found == lane_of(topic, partition, key)
    assert (found is None) == (topic == "orders" and key is None)
    assert world.goes() == [1]


def test_what_has_no_letter_stands_in_the_same_lane_as_one_that_has(database):
    record(database, "orders", A)
    plan_id = make(database)
    lane = lane_of("orders", 0, A)
    with database.writing() as connection:
        others = [PlanItem(2, None, "orders-0-7:orders.handlers.charge", 0, lane), PlanItem(3, None, "orders-0-8:x", 0)]
        plan_item_rows.add_items(connection, plan_id, others, canary=False)
    world = World(database, plan_id)
    assert world.goes() == [1, 3]
    world.ends(1)
    assert world.goes() == [2]


def test_deliveries_to_all_handlers_are_numbered_by_their_messages(database):
    early, late = record(database, "orders", A, A)
    plan_id = make(database)
    with database.writing() as connection:
        plan_item_rows.add_items(connection, plan_id, [PlanItem(3, early, "orders-0-0:other", 0, 5)], canary=False)
        plan_order_rows.renumber_items(connection, plan_id)
        found = plan_item_rows.read_items(connection, plan_id, 0, 9)
    assert [(item.position, item.letter_id, item.place) for item in found] == [
        (1, early, None),
        (2, early, "orders-0-0:other"),
        (3, late, None),
    ]


def test_two_who_claim_at_once_do_not_take_one_lane(database):
    record(database, "orders", *[b"%d" % (number % 40) for number in range(400)])
    # Each key has five letters in each plan.
    ids = [tuple(at for at in range(1, 401) if (at - 1) // 40 % 2 == number) for number in (0, 1)]
    worlds = [World(database, make(database, ids=each)) for each in ids]
    with ThreadPoolExecutor() as threads:
        for found in threads.map(World.goes, worlds * 4):
            assert len(found) <= 40
    with database.reading() as connection:
        under_way = connection.execute(tables.items.select().where(tables.items.c.state == PlanItemState.SENT)).all()
    assert len(under_way) == len({row.lane for row in under_way}) == 40
