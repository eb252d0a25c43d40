"""A group moves to the new protocol of consumer groups (KIP-848), and back while its bridges run."""

import json

import pytest

from tests.delivery_checks import all_settled, choose, command, in_order, json_of, twice
from tests.processes import Served, Stack, eventually

#: As many partitions has the topic, and as many its replays.
PARTITIONS, PORTION = 6, 100


class Move:
    """A group of bridges that moves, and the records that it is given meanwhile."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.produced = stack, 0

    def produce(self) -> None:
        """Produce some records, of which a few fail once."""
        for number in range(self.produced, self.produced + PORTION):
            value = {"fail": 1} if number % 61 == 7 else {"sleep": 0.005}
            name, key = self.stack.topic("orders"), b"%d" % (number % 40)
            self.stack.producer.produce(name, json.dumps(value).encode(), key=key)
        assert self.stack.producer.flush(30) == 0
        self.produced += PORTION

    def start(self, protocol: str) -> Served:
        """Start a bridge, and wait until it consumes."""
        return self.stack.bridge(KAFKA_GROUP_PROTOCOL=protocol)

    def shares(self) -> list[int]:
        """How many partitions each bridge has."""
        bridges = json_of(self.stack, "status")["bridges"]
        return [len(bridge["assigned"]) for bridge in bridges.values()]

    def check(self, protocol: str) -> str:
        """What `bridge check` says with this setting."""
        self.stack.environ["KAFKA_GROUP_PROTOCOL"] = protocol
        return command(self.stack, "check", code=None)


@pytest.mark.slow
def test_a_group_moves_to_the_new_protocol_and_back_with_nothing_lost_or_run_twice(stack: Stack):
    choose(stack, {"orders": {"commit": "completion", "order": "key"}})
    stack.environ["TEST_BATCH"] = "10"
    stack.make_topics("orders", partitions=PARTITIONS)
    stack.worker(wait=False)
    move, group = Move(stack), f"the group '{stack.environ['BRIDGE_GROUP']}' uses the protocol"
    bridges = [move.start("classic") for _ in range(2)]
    move.produce()
    # Kafka refuses it: librdkafka's assignments have data of their own, which the group would lose.
    early = stack.bridge(wait=False, KAFKA_GROUP_PROTOCOL="consumer")
    assert early.ends(30) == 75
    assert "stop them all, then start with KAFKA_GROUP_PROTOCOL=consumer" in early.text
    assert f"{group} 'classic', and these settings choose 'consumer': Kafka does not move it" in move.check("consumer")
    move.produce()
    assert [bridge.terminate() for bridge in bridges] == [0, 0]
    move.produce()
    bridges = [move.start("consumer") for _ in range(2)]
    assert f"{group} 'consumer'." in move.check("consumer")
    move.produce()
    bridges[0].kill()
    bridges[0] = move.start("consumer")
    for place, before in enumerate(bridges):
        # The killed one keeps its partitions until its session ends: who has no more than a third need give none up.
        eventually(lambda: move.shares() == [PARTITIONS, PARTITIONS], 30, "each has half of all")
        move.produce()
        bridges[place] = move.start("classic")
        eventually(lambda: "revoked: " in before.text, 30, "it has given some partitions up")  # noqa: B023
        move.produce()
        assert before.terminate() == 0
    assert f"{group} 'classic'." in move.check("classic")
    move.produce()
    all_settled(stack, "orders", done=move.produced)
    in_order(stack)
    assert twice(stack) == {}
