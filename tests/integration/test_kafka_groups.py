"""Who asks Kafka for groups lives through an outage: requests that librdkafka aborts the process for are not used."""

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
from bridge.kafka.clients import admin_client
settings = SimpleNamespace(kafka={"bootstrap.servers": sys.argv[1]}, group="shop")
admin = admin_client(settings.kafka)
while True:
    try:
        consumer_groups.find_consumed_topics(admin, "shop")
        consumer_groups.has_members(settings, "shop", 1.0)
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
