"""Offsets that compaction has taken away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.delivery_checks import all_settled, choose, wait_until_settled
from tests.processes import Stack, eventually
from tests.servers import kafka as kafka_server
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need

pytestmark = pytest.mark.chaos


@pytest.fixture
def cleaning_kafka() -> Iterator[KafkaServer]:
    need(kafka_server.missing())
    with KafkaServer(settings={"log.cleaner.backoff.ms": "200"}) as server:
        yield server


def test_what_compaction_took_away_is_no_hole(
    cleaning_kafka: KafkaServer, redis_url: str, topic_prefix: str, tmp_path: Path
):
    with Stack(cleaning_kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "") as stack:
        choose(stack, {"orders": {"commit": "completion"}})
        config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        (made,) = admin.create_topics([NewTopic(stack.topic("orders"), 1, 1, config=config)]).values()
        made.result(30)
        for n in range(300):
            stack.producer.produce(stack.topic("orders"), json.dumps(n).encode(), key=b"%d" % (n % 7))
        assert stack.producer.flush(30) == 0

        def kept() -> list[int]:
            # A new segment begins with a record; the cleaner leaves the newest alone.
            stack.produce("orders", "roll", key=b"roll")
            return [record.offset() or 0 for record in stack.records("orders")]

        left = eventually(lambda: found if len(found := kept()) < 100 else None, 60, "compaction has run")
        assert left
        stack.bridge()
        stack.worker()
        # The cleaner may have gone on.
        wait_until_settled(stack, "orders")
        found = all_settled(stack, "orders", done=len(stack.done()))
        (line,) = found["lines"]
        assert line["gaps"] + line["done"] == line["end"] - line["first"]
        assert line["gaps"] > 100
