"""Who asks Kafka for groups lives through an outage: no request times out in a way that librdkafka aborts for."""

import subprocess
import sys

import pytest

from tests.servers.kafka import KafkaServer

#: Asks all the time, for members and commits.
ASKING = """
import sys, time
from types import SimpleNamespace
from bridge.errors import KafkaUnavailable
from bridge.kafka import consumer_groups
from bridge.kafka.clients import consumer_client
settings = SimpleNamespace(kafka={"bootstrap.servers": sys.argv[1], "group.protocol": "consumer"}, group="shop")
member = consumer_client(settings.kafka, "shop")
member.subscribe(["orders"])
while True:
    try:
        member.poll(0)
        consumer_groups.read_members(settings, "shop", 1.0)
        consumer_groups.read_members(settings, "none", 1.0)
        consumer_groups.read_group_commits(settings, ["orders"])
        print("answered", flush=True)
    except KafkaUnavailable:
        print("unavailable", flush=True)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_process_that_asks_for_groups_lives_through_an_outage_of_kafka(own_kafka: KafkaServer):
    own_kafka.create_topics("orders")
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, own_kafka.bootstrap_servers], stdout=subprocess.PIPE, text=True
    ) as asking:
        try:
            assert asking.stdout is not None
            lines = iter(asking.stdout.readline, "")
            assert "answered\n" in lines
            own_kafka.kill()
            assert "unavailable\n" in lines, f"it ended: {asking.wait()}"
            assert "unavailable\n" in lines, f"it ended: {asking.wait()}"
            own_kafka.start()
            for _ in range(10):
                assert "answered\n" in lines, f"it ended: {asking.wait()}"
        finally:
            asking.kill()
