"""What is said of a delivery that was sent back rests on a look that began after it was sent."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from sqlalchemy import insert, select

from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.outcomes.deducing import Deducing, Sent, StillParked
from bridge.deadletters.outcomes.outcomes import Outcomes
from bridge.deadletters.outcomes.redriven import Ending
from bridge.deadletters.plan.plan import ItemState, Options, What
from bridge.deadletters.store import contents, items, plans, schema
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.items import Where
from bridge.deadletters.store.spots import Spot
from bridge.ledger import OWN, Account, Fate, Mark
from bridge.records.origin import Origin
from bridge.records.replayed import replayed
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics.catalog import Catalog
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
    with Fates.opened(settings) as fates:
        ledger = fates.ledger(group)
        assert ledger is not None
        fates.since(group)
        deducing = Deducing(settings, database, fates)
        sent = {}
        for number in range(2):
            write(kafka, f"{source}.replay", [])
            delivery = Origin(source, "", 0, number, "charge", group)
            where = Where(Spot(f"{source}.replay", 0, number), int(time.time() * 1000))
            sent[number] = Sent(delivery, where)
            assert deducing.of({number: sent[number]}) == {}
        # Handed off, and its topic deleted: it runs.
        catalog = Catalog(settings, [f"{source}.replay"])
        catalog.prepare()
        log = catalog.topic_ids[f"{source}.replay"]
        ledger.write([Mark(Account(OWN, f"{source}.replay", log, 0), [0], Fate.HANDED)])
        assert deducing.of(sent) == {}
        # Without Redis nothing proves that it did not run.
        nothing = Deducing(settings, database, Fates(lambda _: None))
        gone = {5: Sent(sent[0].delivery, Where(Spot(f"{source}.nowhere", 0, 0), sent[0].where.at))}
        assert nothing.of(gone) == {}
    database.close()


def test_what_is_parked_after_a_first_look_is_found_by_the_second(kafka: KafkaServer, redis_shared: RedisServer):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    kafka.create_topics(source, f"{source}.retry.5m", partitions=1)
    with Fates.opened(settings) as fates:
        still_parked = StillParked(settings, fates)
        assert still_parked.of(group, source) == frozenset()
        delivery = Origin(source, "", 0, 3, "charge", group)
        write(kafka, f"{source}.retry.5m", replayed(delivery, [], timestamp=None, number=0, once=False, again=""))
        assert {identity for identity, _ in still_parked.of(group, source)} == {delivery.identity}


def test_a_letter_whose_end_nobody_knows_stays_as_it_is_until_that_is_proven(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = settings_of(kafka, redis_shared)
    source, group = f"{settings.group}.orders", settings.group
    kafka.create_topics(source, f"{source}.replay", partitions=1)
    # Redis lost its data after the letter was sent, and long ago: by its own clock, the ledger of this test begins now.
    monkeypatch.setattr(Fates, "since", lambda *_: 2.0)
    database = Database(f"sqlite:///{tmp_path}/letters.db")
    database.migrate()
    with database.writing() as connection:
        plan_id, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        of = kind(connection, "charge", source, consumer_group=group)
        id_ = letter(connection, of, 7, Status.REPLAYING, plan_id=plan_id, topic_id="log")
        item = {"plan_id": plan_id, "position": 1, "letter_id": id_, "state": ItemState.SENT, "sent_at": 1}
        where = {"sent_topic": f"{source}.replay", "sent_partition": 0, "sent_offset": 3}
        connection.execute(insert(schema.items).values({**item, **where}))

    def stands() -> tuple[str, dict[str, int]]:
        with database.reading() as connection:
            status = contents.standings(connection, [id_])[id_].status
            return str(status), items.counts(connection, [plan_id])[plan_id]

    with Fates.opened(settings) as fates:
        outcomes = Outcomes(settings, database, fates)
        outcomes._deduced_at = float("-inf")
        # Neither Kafka nor Redis has anything of it: it may have run before both lost it.
        assert outcomes.look() == 0
        assert stands() == ("replaying", {"unknown": 1})
        ledger = fates.ledger(group)
        assert ledger is not None
        ledger.write([Mark(Account("charge", source, "log", 0), [7], Fate.DONE)])
        outcomes._deduced_at = float("-inf")
        assert outcomes.look() == 0
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
        plan_id, _ = plans.add(connection, What.REDRIVE, "ann", "", {"topic": source}, Options())
        item = {"plan_id": plan_id, "state": ItemState.SENT, "sent_at": 1, "number": 1, "sent_partition": 0}
        for position, offset in enumerate((0, 9), 1):
            # What lies at 0 is there and is read later; nothing lies at 9: the log was cut.
            where = {"sent_topic": f"{source}.replay", "sent_offset": offset, "place": f"{source}-0-{offset}:charge"}
            connection.execute(insert(schema.items).values({**item, **where, "position": position}))
    with Fates.opened(settings) as fates:
        ending = Ending(settings, database, fates)
        # Just sent, an answer of Kafka's may be older than that.
        settings.file.__dict__["kafka_stuck_after"] = 1e12
        assert ending.look(plan_id, deduces=True) == 2
        settings.file.__dict__["kafka_stuck_after"] = 3_600.0
        assert ending.look(plan_id, deduces=True) == 1
    with database.reading() as connection:
        assert items.counts(connection, [plan_id])[plan_id] == {"sent": 1, "unknown": 1}
        why = connection.execute(select(schema.items.c.why).where(schema.items.c.position == 2)).scalar_one()
    assert "ends before it" in why
    database.close()
