"""What is promised of plans before they are applied: they are frozen, counted, and say what is against them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from bridge.deadletters.db import audit_rows, letter_payload, letter_rows, plan_item_rows
from bridge.deadletters.db.database import Database, require_same_cluster
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay import ledger_fates, plan_preview
from bridge.deadletters.replay import plan_service as desk_plans
from bridge.deadletters.replay.plan_action import DiscardAction
from bridge.deadletters.replay.plan_runner import SendingRate
from bridge.deadletters.replay.plan_service import PlanService
from bridge.errors import DeskOfAnotherKafka, KafkaUnavailable, NoSuchPlan, PlanRefused
from bridge.handler_routes import Handler, Routes
from bridge.kafka.topic_admin import Cluster
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.rows import kind, letter

HANDLER = "orders.handlers.charge"


@pytest.fixture
def plans(database: Database, monkeypatch: pytest.MonkeyPatch) -> PlanService:
    """Of an app with one handler, while neither Kafka nor Redis can be asked."""

    def away(*_: Any, **__: Any) -> Any:
        raise KafkaUnavailable("Kafka does not answer.")

    for name in ("read_topic_configs", "read_extents", "find_reading_groups"):
        monkeypatch.setattr(plan_preview, name, away)
    monkeypatch.setattr(ledger_fates, "read_cluster", away)
    for module in (plan_preview, ledger_fates, desk_plans):
        monkeypatch.setattr(module, "admin_client", lambda properties: None)
    routes = Routes({HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0)})
    app: Celery = SimpleNamespace(tasks={})  # type: ignore[assignment]
    return PlanService(app, Settings(FileSettings(), EnvironmentSettings(), "", {}), routes, database)


def fill(database: Database) -> list[int]:
    """Five open letters of two handlers, and one that is discarded."""
    with database.writing() as connection:
        mine, other = kind(connection, HANDLER), kind(connection, "orders.handlers.gone", reason="poison")
        found = [letter(connection, mine, offset, partition=offset % 2, failures=1 + offset) for offset in (2, 1, 0)]
        found += [letter(connection, other, offset) for offset in (7, 6)]
        letter(connection, mine, 9, LetterStatus.DISCARDED)
    return found


def make(
    plans: PlanService,
    what: PlanKind = PlanKind.REPLAY,
    asked: LetterFilter | None = None,
    why: str = "",
    **options: Any,
) -> BulkPlan:
    return plans.make(what, asked or LetterFilter(), PlanOptions(**options), "ann", why)


def test_a_plan_has_the_open_letters_that_were_asked_for_in_the_order_of_their_offsets(plans, database):
    found = fill(database)
    plan = make(plans)
    assert (plan.state, plan.by, plan.outcomes) == (PlanState.PLANNED, "ann", {"waiting": 5})
    with database.reading() as connection:
        page = plan_item_rows.read_items(connection, plan.id, 0, 10)
    assert [item.letter_id for item in page] == [found[2], found[1], found[0], found[4], found[3]]
    assert [item.position for item in page] == [1, 2, 3, 4, 5]


def test_letters_that_come_later_are_none_of_the_plan(plans, database):
    fill(database)
    plan = make(plans)
    fill(database)
    assert plans.one(plan.id).outcomes == {"waiting": 5}


def test_a_plan_says_how_many_by_handler_and_reason_who_is_unknown_and_what_failed_replays_before(plans, database):
    found = fill(database)
    with database.writing() as connection:
        letter_rows.change_letter_status(connection, found[:1], LetterStatus.OPEN, LetterStatus.REPLAYING, 1, 99)
    counts = make(plans).counts
    assert counts.letters == 4
    assert counts.handlers == {HANDLER: {"exhausted": 2}, "orders.handlers.gone": {"poison": 2}}
    assert counts.unknown_handlers == {"orders.handlers.gone": 2}
    assert counts.replaying == 1
    assert counts.replayed == {"1": 1}


def test_what_kafka_or_redis_does_not_tell_is_a_warning(plans, database):
    fill(database)
    said = make(plans).counts.warnings
    assert len(said) == 3
    assert sum("Kafka does not answer" in each for each in said) == 2


def test_a_canary_has_its_waves_from_the_start(plans, database):
    with database.writing() as connection:
        mine = kind(connection, HANDLER)
        for offset in range(30):
            letter(connection, mine, offset)
    plan = make(plans, canary=True)
    with database.reading() as connection:
        assert [len(plan_item_rows.read_waiting_items(connection, plan.id, wave, 100)) for wave in range(4)] == [
            1,
            6,
            26,
            30,
        ]


def test_to_discard_a_reason_is_needed_and_stays_in_the_trail(plans, database):
    fill(database)
    with pytest.raises(PlanRefused, match="a reason is needed"):
        make(plans, PlanKind.DISCARD, why=" ")
    plan = make(plans, PlanKind.DISCARD, why="no such shop")
    with database.reading() as connection:
        (entry,) = audit_rows.read_history(connection, plan_id=plan.id)
    assert (entry.by, entry.what, entry.said) == (
        "ann",
        "discard",
        f"plan {plan.id}: to discard 5 letters: no such shop",
    )


def test_letters_are_archived_without_kafka_and_redis(plans, database):
    fill(database)
    plan = make(plans, PlanKind.ARCHIVE, LetterFilter(statuses=(LetterStatus.OPEN, LetterStatus.DISCARDED)))
    done = plans.apply(plan.id, "ann")
    assert (done.state, done.outcomes, done.is_over) == (PlanState.DONE, {"done": 6}, True)
    with pytest.raises(PlanRefused, match="is done"):
        plans.apply(plan.id, "ann")


@pytest.mark.parametrize(
    ("named", "status", "count"),
    [
        (False, (), 5),
        (True, (), 1),
        (False, (LetterStatus.ARCHIVED,), 1),
        (False, (LetterStatus.OPEN, LetterStatus.ARCHIVED), 6),
        (True, (LetterStatus.OPEN,), 0),
    ],
)
def test_archived_letters_are_discarded_where_their_ids_or_status_name_them(plans, database, named, status, count):
    fill(database)
    with database.writing() as connection:
        archived = letter(connection, kind(connection, HANDLER), 11, LetterStatus.ARCHIVED)
    asked = LetterFilter(ids=(archived,) if named else (), statuses=status)
    counts = make(plans, PlanKind.DISCARD, asked, why="no such shop").counts
    assert counts.letters == count
    assert [*counts.warnings] == ([] if count else [f"letter {archived} is archived, and stays so"])


def test_an_archived_letter_is_discarded_unless_a_redrive_has_its_delivery_in_flight(plans, database):
    with database.writing() as connection:
        mine = kind(connection, HANDLER)
        free, sent, before = (
            letter(connection, mine, offset, LetterStatus.ARCHIVED, number=2) for offset in (11, 12, 13)
        )
    plan, other = make(plans, PlanKind.DISCARD, LetterFilter(ids=(free, sent, before)), why="no such shop"), make(plans)
    with database.writing() as connection:
        in_flight = [PlanItem(offset, None, f"orders-0-{offset}:{HANDLER}", 0) for offset in (12, 13)]
        plan_item_rows.add_items(connection, other.id, in_flight, canary=False)
        plan_item_rows.claim_items(connection, other.id, {12: None, 13: LogPosition("orders.replay", 0, 0)}, 1)
        spot = LogPosition("orders.replay", 0, 0)
        plan_item_rows.note_sent_records(connection, other.id, [SentRecord(13, 2, spot)], 1)
        found = plan_item_rows.read_items(connection, plan.id, 0, 10)
        taken = DiscardAction(database, plan, None).take(connection, found, 2)  # type: ignore[arg-type]
        status = letter_payload.read_letter_standings(connection, [free, sent, before])
    assert taken.skipped == {2: f"plan {other.id} has it in flight"}
    assert [each.item.letter_id for each in taken.claimed] == [free, before]
    assert [status[each].status for each in (free, sent, before)] == ["discarded", "archived", "discarded"]


def test_a_plan_that_is_not_there_or_is_over_is_refused_with_what_to_do(plans, database):
    with pytest.raises(NoSuchPlan, match="deadletters plans"):
        plans.apply(77, "ann")
    with pytest.raises(PlanRefused, match="above 0"):
        make(plans, rate=0.0)
    fill(database)
    plan = make(plans)
    plans.stop(plan.id, "bob", "wait for the bank")
    with pytest.raises(PlanRefused, match="nothing to stop"):
        plans.stop(plan.id, "bob")
    assert plans.one(plan.id).stopped == "stopped by bob: wait for the bank"


def test_nothing_is_sent_into_another_kafka_than_that_of_the_letters(plans, database, monkeypatch):
    fill(database)
    require_same_cluster(database, "its own")
    plan = make(plans)
    monkeypatch.setattr(desk_plans, "read_cluster", lambda _: Cluster("another", {}))
    for tried in (lambda: plans.apply(plan.id, "ann"), lambda: plans.wait(plan.id)):
        with pytest.raises(DeskOfAnotherKafka, match=r"'its own'.*'another'"):
            tried()
    assert plans.one(plan.id) == plan


def test_what_plans_of_the_same_id_in_two_databases_send_is_told_apart(plans, database):
    fill(database)
    plan = make(plans)
    other = replace(plan, at=plan.at + 1_000)
    assert other.name != plan.name
    assert other.number == plan.number + 1
    assert 0 < plan.number < replace(plan, at=plan.at + 60 * 365 * 86_400_000).number < 2**31


def test_the_latest_plans_come_first(plans, database):
    fill(database)
    made = [make(plans).id for _ in range(3)]
    assert [plan.id for plan in plans.latest(2)] == made[:0:-1]


def test_what_is_over_is_counted_once_however_often_plans_are_listed_and_anew_once_it_is_gone_on_with(
    plans, database, monkeypatch
):
    fill(database)
    ends, stops, waits = (make(plans, PlanKind.ARCHIVE, LetterFilter(handlers=(HANDLER,))).id for _ in range(3))
    asked, counts = [], plan_item_rows.count_item_states

    def counted(connection, plan_ids, wave=None):
        asked.append(sorted(plan_ids))
        return counts(connection, plan_ids, wave)

    monkeypatch.setattr(plan_item_rows, "count_item_states", counted)

    def listed():
        asked.clear()
        return {plan.id: plan.outcomes for plan in plans.latest()}

    plans.stop(stops, "ann")
    plans.apply(ends, "ann")
    before = listed()
    assert (before[ends], before[stops], before[waits]) == ({"done": 3}, {"waiting": 3}, {"waiting": 3})
    assert asked == [[ends, stops, waits]]
    assert listed() == before
    assert asked == [[waits]]
    plans.approve(stops, "ann")
    listed()
    assert asked == [[stops, waits]]
    plans.apply(stops, "ann")
    assert listed()[stops] == {"skipped": 3}
    assert asked == [[stops, waits]]
    listed()
    assert asked == [[waits]]


def test_a_rate_lets_so_many_through_a_second():
    pace, went = SendingRate(100.0, 0.0), 0
    for step in range(1, 501):
        count = pace.allowed(1_000, step / 100)
        pace.count_sent(count)
        went += count
    assert 490 <= went <= 526
    assert SendingRate(None, 0.0).allowed(7, 0.0) == 7


def test_a_rate_is_kept_where_each_turn_takes_long_and_what_was_missed_in_a_pause_is_not_made_up_for():
    pace, went = SendingRate(1_000.0, 0.0), 0
    for turn in range(20):
        some = pace.allowed(1_000, turn * 0.9)
        pace.count_sent(some)
        went += some
    assert 17_000 <= went <= 17_101
    assert pace.allowed(1_000_000, 1_000.0) == 1_000
