"""A bridge that was away too long joins its group again, while retry topics that it must consume are new."""

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.consumer.subscription import Subscription
from bridge.embedded import EmbeddedKafka
from bridge.kafka.clients import admin_client, consumer_client

#: The shortest that Kafka's client may be away before it has left its group.
AWAY = 6.0


@pytest.mark.slow
def test_a_subscription_that_changes_while_a_lost_member_joins_again_does_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"librdkafka ended the process ({done.returncode}): {done.stderr}"


def change_while_joining_again() -> None:
    with EmbeddedKafka() as kafka:
        times = {"max.poll.interval.ms": int(AWAY * 1000), "session.timeout.ms": int(AWAY * 1000)}
        properties = {"bootstrap.servers": kafka.bootstrap_servers, **times}
        topics = [f"orders.retry.{number}m" for number in range(20)]
        admin = admin_client({"bootstrap.servers": kafka.bootstrap_servers})
        for topic in ["orders", *topics]:
            admin.list_topics(topic, timeout=10)  # which makes it
        consumer, seen = consumer_client(properties, "orders"), SimpleNamespace(assigned=False, lost=False)

        def take(client: Any, partitions: Any) -> None:
            client.incremental_assign(partitions)
            seen.assigned = True

        rebalances: Any = SimpleNamespace(
            on_assign=take,
            on_revoke=lambda client, partitions: client.incremental_unassign(partitions),
            on_lost=lambda client, partitions: vars(seen).update(lost=True),
            unsettled=lambda gone: {},
        )
        catalog, logs = SimpleNamespace(waiting={}), SimpleNamespace()
        subscription = Subscription(consumer, rebalances, ["orders"], catalog, logs, None)  # type: ignore[arg-type]
        subscription.refresh()
        poll_until(consumer, lambda: seen.assigned)
        time.sleep(AWAY + 1)
        poll_until(consumer, lambda: seen.lost)
        for topic in topics:
            consumer.poll(0.1)
            catalog.waiting = {**catalog.waiting, topic: None}
            subscription.refresh()
        consumer.close()


def poll_until(consumer: Any, is_reached: Any) -> None:
    deadline = time.monotonic() + 30
    while not is_reached():
        assert time.monotonic() < deadline
        consumer.poll(0.05)


if __name__ == "__main__":
    change_while_joining_again()
