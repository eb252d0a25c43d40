"""What is said of a delivery that was sent back rests on a look that began after it was sent."""

import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bridge.deadletters.fates import Fates
from bridge.deadletters.outcomes.deducing import Deducing, Sent, StillParked
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.items import Where
from bridge.deadletters.store.spots import Spot
from bridge.ledger import OWN, Account, Fate, Mark
from bridge.records.origin import Origin
from bridge.records.replayed import replayed
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics.catalog import Catalog
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
