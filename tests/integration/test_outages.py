"""Kafka and Redis going away and coming back, under a bridge and a worker that nobody restarts."""

from pathlib import Path

import pytest

from tests.processes import Served, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer


@pytest.fixture
def outage(mortal_stack: Stack) -> Stack:
    """Publishing is given up soon."""
    mortal_stack.environ["KAFKA_MESSAGE_TIMEOUT_MS"] = "2000"
    mortal_stack.make_topics("orders", partitions=2)
    return mortal_stack


def cpu_seconds(process: Served) -> float:
    """The time that a process has spent on a processor."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def task_ids(coordinates: list[str]) -> set[str]:
    return {f"{place}:tests.handlers.simple.work" for place in coordinates}


@pytest.mark.slow
def test_redis_may_be_frozen_and_stopped_and_the_bridge_goes_on_by_itself(outage: Stack, mortal_redis: RedisServer):
    bridge = outage.bridge()
    coordinates = outage.produce("orders", *range(10))
    eventually(lambda: outage.committed("orders") == 10, 15)

    # Noticed also while there is nothing to hand off.
    mortal_redis.freeze()
    bridge.says("consumption pauses until they can", 30)
    eventually(lambda: bridge.get("/readyz")[0] == 503, 5)
    coordinates += outage.produce("orders", *range(10))
    mortal_redis.thaw()
    eventually(lambda: outage.committed("orders") == 20, 20)
    eventually(bridge.ready, 10)

    mortal_redis.stop()
    coordinates += outage.produce("orders", *range(10))
    eventually(lambda: bridge.get("/readyz")[0] == 503, 20)
    before = cpu_seconds(bridge)
    eventually(lambda: bridge.metric("bridge_handoff_failures_total") >= 5, 20)
    assert cpu_seconds(bridge) - before < 2, "a busy loop"
    assert bridge.count("cannot be handed off") == 2, "once for each time that Redis was away"
    assert bridge.count("are handed off again") == 1
    mortal_redis.start()
    eventually(lambda: outage.committed("orders") == 30, 20)
    eventually(bridge.ready, 10)
    assert task_ids(coordinates) == set(outage.queued_ids())
    assert bridge.terminate() == 0


@pytest.mark.slow
def test_a_bridge_without_redis_still_ends_within_seconds_of_a_signal(outage: Stack, mortal_redis: RedisServer):
    bridge = outage.bridge()
    mortal_redis.freeze()
    outage.produce("orders", *range(10))
    # One question on a new connection takes 12 s, and at its start it may ask two before it knows.
    eventually(lambda: not bridge.ready(), 40)
    # A few seconds for each thing that Kafka is asked at the end.
    assert bridge.terminate(15) == 0


@pytest.mark.slow
def test_while_kafka_is_away_nothing_is_lost_and_no_handler_runs_twice(outage: Stack, mortal_kafka: KafkaServer):
    bridge = outage.bridge()
    worker = outage.worker()
    (before,) = outage.produce("orders", {"id": 1})
    eventually(lambda: outage.done() == [before], 20)
    (dead,) = outage.produce("orders", {"sleep": 2, "dead": "no such card"})
    eventually(lambda: outage.runs(coordinates=dead), 20)
    eventually(lambda: outage.committed("orders") == 2, 20)
    mortal_kafka.stop()
    worker.says("but Kafka did not take its dead letter", 30)
    eventually(lambda: bridge.get("/readyz")[0] == 503, 20)
    assert "Kafka does not answer" in bridge.get("/readyz")[1]
    mortal_kafka.start()
    (letter,) = outage.dead("orders", 1)
    assert letter.origin == dead
    assert letter.ours["attempts"] == "1"
    assert letter.ours["reason"] == "permanent"
    (after,) = outage.produce("orders", {"id": 2})
    eventually(lambda: after in outage.done(), 30)
    eventually(bridge.ready, 10)
    assert [run.outcome for run in outage.runs(coordinates=dead)] == ["begun"]
    assert outage.done() == [before, after]
    assert bridge.count("The bridge waits for it") == 1
    assert bridge.count("Connection refused") < 5
    assert worker.count("Connection refused") < 5
    assert worker.exit_code is None
    assert bridge.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize("session", [3, 45])
def test_a_kafka_that_is_frozen_is_said_within_half_a_minute(outage: Stack, mortal_kafka: KafkaServer, session: int):
    """Its connections stay open, and whether the bridge keeps its partitions is a matter of the session."""
    bridge = outage.bridge(KAFKA_SESSION_TIMEOUT_MS=str(session * 1000))
    outage.produce("orders", *range(10))
    eventually(lambda: outage.committed("orders") == 10, 20)
    mortal_kafka.freeze()
    try:
        eventually(lambda: bridge.get("/readyz")[0] == 503, 30)
        assert "Kafka" in bridge.get("/readyz")[1]
    finally:
        mortal_kafka.thaw()
    eventually(bridge.ready, 60)


@pytest.mark.slow
def test_a_bridge_waits_for_a_kafka_that_is_not_there_at_the_start(outage: Stack, mortal_kafka: KafkaServer):
    mortal_kafka.stop()
    bridge = outage.bridge(wait=False)
    bridge.says("Kafka does not answer", 30)
    assert bridge.get("/healthz")[0] == 200
    assert bridge.get("/readyz")[0] == 503
    mortal_kafka.start()
    eventually(bridge.ready, 30)
    outage.produce("orders", *range(5))
    eventually(lambda: outage.waiting() == 5, 20)
    mortal_kafka.stop()
    # The time that docker-compose.yml gives it.
    assert bridge.terminate(15) == 0
