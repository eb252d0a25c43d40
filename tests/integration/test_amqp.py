"""RabbitMQ as the Celery broker, with classic and with quorum queues: each delivery has its one end there too."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amqp
import pytest

from tests.processes import Stack, eventually
from tests.promises import AUDITED, audit, choose, wait_until_settled
from tests.servers.kafka import KafkaServer
from tests.servers.rabbitmq import RabbitmqServer

pytestmark = pytest.mark.slow

#: Celery's own settings for each kind of queue.
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"task_default_queue_type": "quorum", "task_create_missing_queue_type": "quorum"},
}


@pytest.fixture(params=sorted(QUEUES))
def on_rabbitmq(
    request: pytest.FixtureRequest,
    kafka: KafkaServer,
    rabbitmq: RabbitmqServer,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> Iterator[Stack]:
    """A stack whose broker is RabbitMQ, with the ledger in a Redis."""
    with Stack(kafka.bootstrap_servers, rabbitmq.url, topic_prefix, tmp_path, "", LEDGER_URL=redis_url) as stack:
        choose(
            stack,
            {"orders": {"commit": "completion"}},
            lost_pauses=(0.2, 0.5),
            broker_transport_options={},
            **QUEUES[request.param],
        )
        stack.make_topics("orders")
        yield stack


def left_in_queue(server: RabbitmqServer, queue: str) -> int:
    """How many messages RabbitMQ has of a queue that nobody holds."""
    with amqp.Connection(f"127.0.0.1:{server.port}", "guest", "guest") as connection:
        channel: Any = connection.channel()
        return int(channel.queue_declare(queue, passive=True).message_count)


def test_each_delivery_has_its_one_end(on_rabbitmq: Stack, rabbitmq: RabbitmqServer):
    stack = on_rabbitmq
    stack.bridge()
    worker = stack.worker()
    values: list[dict[str, Any]] = [
        {"kill": 1}, {"kill": 9}, {"fail": 2}, {"fail": 9}, {"dead": True}, {"later": 1}, *({"n": n} for n in range(5)),
    ]  # fmt: skip
    lost, poison, failed, exhausted, permanent, later, *plain = stack.produce("orders", *values)
    letters = {letter.origin: letter.ours["reason"] for letter in stack.dead("orders", 3, 60)}
    assert letters == {poison: "poison", exhausted: "exhausted", permanent: "permanent"}
    eventually(lambda: Counter(stack.done("orders")) == Counter([lost, failed, later, *plain]), 30, "done once each")
    wait_until_settled(stack, "orders")
    found = audit(stack, "orders")
    assert {name: found[name] for name in AUDITED} == dict.fromkeys(AUDITED, 0) | {"done": 8, "dead": 3}
    assert len(stack.runs("orders", poison)) == 3
    assert worker.exit_code is None
    assert worker.terminate() == 0
    assert left_in_queue(rabbitmq, stack.queue) == 0
