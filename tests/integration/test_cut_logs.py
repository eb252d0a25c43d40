"""Logs that lose their end or are made anew: what was read of them is not what lies there now."""

import pytest

from bridge.errors import PublishFailed
from bridge.failure import Failure
from bridge.letters import letters
from bridge.message import Dead, Delivery, Message
from bridge.publisher import Publisher
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.servers.kafka import KafkaServer


@pytest.mark.slow
def test_dead_letters_get_out_again_after_their_topic_has_lost_its_end(own_kafka: KafkaServer):
    own_kafka.create_topics("orders.dlq")
    chosen = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": own_kafka.bootstrap_servers})
    publisher, dead = Publisher(chosen), Dead("permanent", Failure("E", "m", "", 1))
    for offset in range(3):
        publisher.dead_letter(Delivery(Message("orders", 0, offset), "work"), dead, "bridge")
    own_kafka.stop()
    own_kafka.cut("orders.dlq", 1)
    own_kafka.start()
    with pytest.raises(PublishFailed, match="orders-0-3"):
        # An idempotent producer is out of step with such a log for ever.
        publisher.dead_letter(Delivery(Message("orders", 0, 3), "work"), dead, "bridge")
    publisher.dead_letter(Delivery(Message("orders", 0, 3), "work"), dead, "bridge")
    assert [letter[:3] for letter in letters(chosen, "orders").found] == [(0, 0, "work"), (0, 3, "work")]
