"""What is said of a delivery that was sent back rests on a look that began after it was sent."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import insert, select

from bridge.deadletters.db import letter_payload, plan_item_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.plan_item_rows import LogPosition, SentPosition
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import OutcomeDeduction, SentDelivery, StillParked
from bridge.deadletters.replay.plan_lanes import LaneRelease
from bridge.deadletters.replay.plan_progress import require_plan
from bridge.deadletters.replay.redrive_outcomes import RedriveOutcomes
from bridge.deadletters.replay.replay_outcomes import ReplayOutcomes
from bridge.formats.delivery_identity import Origin
from bridge.formats.replay_record import replay_headers
from bridge.kafka.partition_offsets import Extent
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import RETRY_RECORD, Account, Fate, Mark
from bridge.ledger.unsettled_retry_records import ParkedSearch
from bridge.settings import EnvironmentSettings, FileSettings, Settings, TopicSettings
from tests.desk.rows import kind, letter
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer


def settings_of(kafka: KafkaServer, redis: RedisServer) -> Settings:
    environment = EnvironmentSettings(BRIDGE_GROUP=f"looks{uuid.uuid4().hex[:8]}")
    return Settings(FileSettings(), environment, redis.fresh_url(), {"bootstrap.servers": kafka.bootstrap_servers})


def write(kafka: KafkaServer, topic: str, headers: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"{}", partition=0, headers=headers)
    assert not producer.flush(20)


def test_one_that_is_sent_after_a_look_has_begun_is_not_said_to_be_gone(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path: Path
):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    kafka.create_topics(source, f"{source}.replay", partitions=1)
    database = Database(f"sqlite:///{tmp_path}/letters.db")
    with LedgerFates.opened(settings) as fates:
        ledger = fates.ledger(group)
        assert ledger is not None
        fates.since(group)
        deducing = OutcomeDeduction(settings, database, fates)
        sent = {}
        for number in range(2):
            write(kafka, f"{source}.replay", [])
            delivery = Origin(source, "", 0, number, "charge", group)
            where = SentPosition(LogPosition(f"{source}.replay", 0, number), int(time.time() * 1000))
            sent[number] = SentDelivery(delivery, where)
            assert deducing.deduce_outcomes({number: sent[number]}) == {}
        # Handed off, and its topic deleted: it runs.
        catalog = TopicCatalog(settings, [f"{source}.replay"])
        catalog.prepare()
        log = catalog.topic_ids[f"{source}.replay"]
        ledger.write([Mark(Account(RETRY_RECORD, f"{source}.replay", log, 0), [0], Fate.HANDED)])
        assert deducing.deduce_outcomes(sent) == {}
        # Without Redis nothing proves that it did not run.
        nothing = OutcomeDeduction(settings, database, LedgerFates(lambda _: None))
        gone = {
            5: SentDelivery(sent[0].delivery, SentPosition(LogPosition(f"{source}.nowhere", 0, 0), sent[0].where.at))
        }
        assert nothing.deduce_outcomes(gone) == {}
    database.close()


def test_what_is_parked_after_a_first_look_is_found_by_the_second(kafka: KafkaServer, redis_shared: RedisServer):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    kafka.create_topics(source, f"{source}.retry.5m", partitions=1)
    with LedgerFates.opened(settings) as fates:
        still_parked = StillParked(settings, fates)
        assert still_parked.find_parked(group, source) == frozenset()
        delivery = Origin(source, "", 0, 3, "charge", group)
        write(kafka, f"{source}.retry.5m", replay_headers(delivery, [], timestamp=None, number=0, once=False, again=""))
        assert {identity for identity, _ in still_parked.find_parked(group, source)} == {delivery.identity}


def test_a_sequence_that_goes_on_while_its_first_look_is_under_way_is_still_parked(
    kafka: KafkaServer, redis_shared: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    replay = f"{source}.replay"
    kafka.create_topics(source, replay, partitions=1)
    second, third = (Origin(source, "", 0, 3, name, group) for name in ("second", "third"))
    write(kafka, replay, replay_headers(second, [], timestamp=None, again="plan 1"))
    client = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    client.commit(offsets=[TopicPartition(replay, 0, 1)], asynchronous=False)
    client.close()
    with LedgerFates.opened(settings) as fates:
        ledger = fates.ledger(group)
        assert ledger is not None
        begin = ParkedSearch._begin

        def begin_late(search: ParkedSearch, extent: Extent, account: Account) -> int:
            # Kafka has told the ends, and Redis is not asked yet: the worker goes on to the next handler.
            ledger.write([Mark(account, [0], Fate.HANDED)])
            write(kafka, replay, replay_headers(third, [], timestamp=None, again="plan 1"))
            ledger.write([Mark(account, [0], Fate.DONE)])
            return begin(search, extent, account)

        monkeypatch.setattr(ParkedSearch, "_begin", begin_late)
        assert {identity for identity, _ in StillParked(settings, fates).find_parked(group, source)} == {third.identity}


def test_a_letter_whose_end_nobody_knows_stays_as_it_is_until_that_is_proven(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    kafka.create_topics(source, f"{source}.replay", partitions=1)
    # Redis lost its data after the letter was sent, and long ago: by its own clock, the ledger of this test begins now.
    monkeypatch.setattr(LedgerFates, "since", lambda *_: 2.0)
    database = Database(f"sqlite:///{tmp_path}/letters.db")
    database.migrate()
    with database.writing() as connection:
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        of = kind(connection, "charge", source, consumer_group=group)
        id_ = letter(connection, of, 7, LetterStatus.REPLAYING, plan_id=plan_id, topic_id="log")
        item = {"plan_id": plan_id, "position": 1, "letter_id": id_, "state": PlanItemState.SENT, "sent_at": 1}
        where = {"sent_topic": f"{source}.replay", "sent_partition": 0, "sent_offset": 3}
        connection.execute(insert(tables.items).values({**item, **where}))

    def stands() -> tuple[str, dict[str, int]]:
        with database.reading() as connection:
            status = letter_payload.read_letter_standings(connection, [id_])[id_].status
            return str(status), plan_item_rows.count_item_states(connection, [plan_id])[plan_id]

    with LedgerFates.opened(settings) as fates:
        outcomes = ReplayOutcomes(settings, database, fates)
        outcomes._deduced_at = float("-inf")
        # Neither Kafka nor Redis has anything of it: it may have run before both lost it.
        assert outcomes.note_outcomes() == 0
        assert stands() == ("replaying", {"unknown": 1})
        ledger = fates.ledger(group)
        assert ledger is not None
        ledger.write([Mark(Account("charge", source, "log", 0), [7], Fate.DONE)])
        outcomes._deduced_at = float("-inf")
        assert outcomes.note_outcomes() == 0
        assert stands() == ("resolved", {"done": 1})
    database.close()


def test_what_a_redrive_sent_behind_the_end_of_its_log_ends_with_the_reason(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path: Path
):
    settings = settings_of(kafka, redis_shared)
    source = f"{settings.group}.orders"
    kafka.create_topics(source, f"{source}.replay", partitions=1)
    write(kafka, f"{source}.replay", [])
    database = Database(f"sqlite:///{tmp_path}/letters.db")
    database.migrate()
    with database.writing() as connection:
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REDRIVE, "ann", "", {"topic": source}, PlanOptions())
        item = {"plan_id": plan_id, "state": PlanItemState.SENT, "sent_at": 1, "number": 1, "sent_partition": 0}
        for position, offset in enumerate((0, 9), 1):
            # What lies at 0 is there and is read later; nothing lies at 9: the log was cut.
            where = {"sent_topic": f"{source}.replay", "sent_offset": offset, "place": f"{source}-0-{offset}:charge"}
            connection.execute(insert(tables.items).values({**item, **where, "position": position}))
    with LedgerFates.opened(settings) as fates:
        ending = RedriveOutcomes(settings, database, fates)
        # Just sent, an answer of Kafka's may be older than that.
        settings.file.__dict__["kafka_stuck_after"] = 1e12
        assert ending.note_outcomes(plan_id, deduces=True) == 2
        settings.file.__dict__["kafka_stuck_after"] = 3_600.0
        assert ending.note_outcomes(plan_id, deduces=True) == 1
    with database.reading() as connection:
        assert plan_item_rows.count_item_states(connection, [plan_id])[plan_id] == {"sent": 1, "unknown": 1}
        why = connection.execute(select(tables.items.c.why).where(tables.items.c.position == 2)).scalar_one()
    assert "ends before it" in why
    database.close()


@pytest.mark.parametrize("as_letter", [False, True])
def test_a_message_that_runs_again_holds_its_lane_until_the_later_handlers_of_its_sequence_have_run_again_too(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path: Path, as_letter: bool
):
    settings = settings_of(kafka, redis_shared)
    source, group, steps = f"{settings.group}.orders", settings.group, ("first", "second", "third")
    chosen = {"commit": "completion", "order": "key", "sequence": steps}
    settings.file.kafka_topics[source] = TopicSettings.model_validate(chosen)
    replay = f"{source}.replay"
    kafka.create_topics(source, replay, partitions=1)
    catalog = TopicCatalog(settings, [source, replay])
    catalog.prepare()
    log, own = catalog.topic_ids[source], Account(RETRY_RECORD, replay, catalog.topic_ids[replay], 0)
    database = Database(f"sqlite:///{tmp_path}/letters.db")
    database.migrate()
    with database.writing() as connection:
        options = PlanOptions(again=True, logs={"0": log})
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REDRIVE, "ann", "", {"topic": source}, options)
        item = {"plan_id": plan_id, "state": PlanItemState.DONE, "ended_at": int(time.time() * 1000), "held": False}
        if as_letter:
            of = kind(connection, "first", source, consumer_group=group)
            item["letter_id"] = letter(connection, of, 0, LetterStatus.RESOLVED, again="plan 1", topic_id=log)
        else:
            item["place"] = f"{source}-0-0:first"
        connection.execute(insert(tables.items).values({**item, "position": 1, "next": 2}))
        plan = require_plan(connection, plan_id)
    with LedgerFates.opened(settings) as fates:
        ledger = fates.ledger(group)
        assert ledger is not None
        # All ran before.
        ledger.write([Mark(Account(name, source, log, 0), [0], Fate.DONE) for name in steps])
        release = LaneRelease(settings, database, plan, fates)
        for offset, name in enumerate(steps[1:]):
            step = Origin(source, log, 0, 0, name, group)
            write(kafka, replay, replay_headers(step, [], timestamp=None, again=plan.name))
            assert release.passed() == []
            ledger.write([Mark(own, [offset], Fate.HANDED)])
            assert release.passed() == []
            ledger.write([Mark(own, [offset], Fate.DONE)])
        assert release.passed() == [1]
    database.close()
