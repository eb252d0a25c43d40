"""Logs that lose their end or are made anew: what was read of them is not what lies there now."""

from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bridge.errors import PublishFailed
from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.kafka.dead_letter_reader import read_dead_letters
from bridge.kafka.publisher import Publisher
from bridge.ledger import Fate, Mark
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import audit, choose, delete_topic, json_of, ledger
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer

TOPICS = ("orders", "many")


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
    assert [letter.whose[:3] for letter in read_dead_letters(chosen, "orders").letters] == [
        (0, 0, "work"),
        (0, 3, "work"),
    ]


@pytest.fixture
def stack_of_two(stack: Stack) -> Stack:
    """`orders` with commit="completion", `many` with commit="handoff"."""
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics(*TOPICS)
    return stack


def new_are_done(stack: Stack, topic: str, count: int) -> bool:
    done = {run.value["new"] for run in stack.runs(topic) if run.outcome == "done" and "new" in run.value}
    return done == set(range(count))


def is_committed(stack: Stack, topic: str, offset: int) -> bool:
    return stack.committed(topic) == offset


def test_a_topic_made_again_under_a_running_bridge_is_read_from_its_beginning(stack_of_two: Stack):
    stack = stack_of_two
    bridge = stack.bridge()
    stack.worker()
    for topic in TOPICS:
        stack.produce(topic, *({"old": n} for n in range(20)))
    eventually(lambda: len(stack.done()) == 40 and all(stack.committed(topic) == 20 for topic in TOPICS))
    for topic in TOPICS:
        delete_topic(stack, topic)
    eventually(lambda: not any(stack.has_topic(topic) for topic in TOPICS))
    stack.make_topics(*TOPICS)
    for topic in TOPICS:
        # More than there were: the client goes on at 20, and by offsets nothing is wrong.
        stack.produce(topic, *({"new": n} for n in range(30)))
    for topic in TOPICS:
        eventually(partial(new_are_done, stack, topic, 30), 60, topic)
        eventually(partial(is_committed, stack, topic, 30))
        found = audit(stack, topic)
        assert (found["done"], found["unaccounted"], found["open"]) == (30, 0, 0)
        assert [change["what"] for change in found["log_changes"]] == ["made anew"]
        assert bridge.metric("bridge_log_changes_total", topic=stack.topic(topic), what="made anew") == 1
    assert bridge.count("the topic was deleted and recreated") == 2


@pytest.mark.slow
@pytest.mark.parametrize("bridge_runs", [True, False], ids=["under a running bridge", "while none runs"])
def test_what_comes_after_a_log_has_lost_its_end_is_handled(
    mortal_stack: Stack, mortal_kafka: KafkaServer, bridge_runs: bool
):
    stack = mortal_stack
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics(*TOPICS)
    # Long enough that Kafka is back before the group goes on without the bridge: it hears of it from the log alone.
    bridge = stack.bridge(KAFKA_SESSION_TIMEOUT_MS="45000")
    stack.worker()
    for topic in TOPICS:
        stack.produce(topic, *({"old": n} for n in range(10)))
        stack.produce(topic, *({"old": n} for n in range(10, 15)))
    eventually(lambda: len(stack.done()) == 30 and all(stack.committed(topic) == 15 for topic in TOPICS))
    if not bridge_runs:
        assert bridge.terminate() == 0
    mortal_kafka.stop()
    for topic in TOPICS:
        mortal_kafka.cut(stack.topic(topic), 10)
    mortal_kafka.start()
    # One that had written before is out of step with such a log for ever.
    stack.producer = Producer({"bootstrap.servers": stack.kafka})
    for topic in TOPICS:
        (first, *_) = stack.produce(topic, *({"new": n} for n in range(8)))
        assert first.endswith("-0-10")
    if not bridge_runs:
        bridge = stack.bridge()
    for topic in TOPICS:
        eventually(partial(new_are_done, stack, topic, 8), 60, topic)
        eventually(partial(is_committed, stack, topic, 18))
        found = audit(stack, topic)
        assert (found["unaccounted"], found["handed"]) == (0, 0)
        assert [(change["what"], change["first"]) for change in found["log_changes"]] == [("went back", 10)]
    assert len(stack.done()) == 30 + 16
    assert bridge.count("the log was truncated") == 2


@pytest.mark.slow
def test_what_comes_after_a_bridge_has_seen_the_loss_and_was_restarted_is_handled(
    mortal_stack: Stack, mortal_kafka: KafkaServer
):
    """What was committed before looks whole as soon as as much is there again."""
    stack = mortal_stack
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders")
    bridge = stack.bridge()
    stack.worker()
    stack.produce("orders", *({"old": n} for n in range(10)))
    stack.produce("orders", *({"old": n} for n in range(10, 15)))
    eventually(lambda: len(stack.done()) == 15 and stack.committed("orders") == 15)
    assert bridge.terminate() == 0
    mortal_kafka.stop()
    mortal_kafka.cut(stack.topic("orders"), 10)
    mortal_kafka.start()
    bridge = stack.bridge()
    bridge.says("the log was truncated")
    bridge.kill()
    stack.producer = Producer({"bootstrap.servers": stack.kafka})
    (first, *_) = stack.produce("orders", *({"new": n} for n in range(8)))
    assert first.endswith("-0-10")
    stack.bridge()
    eventually(partial(new_are_done, stack, "orders", 8), 60)
    eventually(partial(is_committed, stack, "orders", 18))
    assert audit(stack)["unaccounted"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("bridge_runs", [True, False], ids=["under a running bridge", "while none runs"])
def test_a_ledger_set_back_to_before_kafka_was_restarted_takes_no_log_for_another(
    mortal_stack: Stack, mortal_kafka: KafkaServer, bridge_runs: bool
):
    """Each start of Kafka is another leader epoch, of which such a ledger knows nothing; the commit does."""
    stack = mortal_stack
    choose(stack, {"orders": {"commit": "completion"}})
    stack.make_topics("orders")
    bridge = stack.bridge()
    stack.worker()
    stack.produce("orders", *range(5))
    eventually(partial(is_committed, stack, "orders", 5))
    with stack.redis() as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
    mortal_kafka.stop()
    mortal_kafka.start()
    stack.produce("orders", *range(5))
    eventually(partial(is_committed, stack, "orders", 10), 60)
    if not bridge_runs:
        bridge.kill()
    with stack.redis() as client, ledger(stack, "orders") as (fates, account):
        pipe = client.pipeline()
        pipe.flushdb()
        for key, value in before.items():
            pipe.restore(key, 0, value)
        pipe.execute()
        # What a worker was at meanwhile.
        fates.write([Mark(account, range(10, 11), Fate.DONE)])
    if not bridge_runs:
        bridge = stack.bridge()
    stack.produce("orders", *range(5))
    eventually(partial(is_committed, stack, "orders", 15), 60)
    assert bridge.count("the log was truncated") == 0
    assert audit(stack, code=None)["log_changes"] == []


@pytest.mark.slow
def test_what_retention_took_is_counted_and_nothing_that_is_left_is_jumped_over(stack: Stack):
    """KAFKA_AUTO_OFFSET_RESET=latest is for a group that has read nothing yet."""
    choose(stack, {"orders": {"commit": "completion"}})
    stack.environ["KAFKA_AUTO_OFFSET_RESET"] = "latest"
    stack.make_topics("orders")
    bridge = stack.bridge()
    worker = stack.worker()
    stack.produce("orders", *({"old": n} for n in range(5)))
    eventually(partial(is_committed, stack, "orders", 5))
    assert bridge.terminate() == 0
    assert bridge.count("did not answer") == 0
    stack.produce("orders", *({"gone": n} for n in range(61)))
    stack.produce("orders", *({"new": n} for n in range(20)))
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    place = TopicPartition(stack.topic("orders"), 0, 66)
    admin.delete_records([place])[place].result(30)
    (change,) = audit(stack, code=1)["log_changes"]
    assert (change["what"], change["first"], change["end"], change["lost"]) == ("expired", 5, 66, 61)
    bridge = stack.bridge()
    eventually(partial(new_are_done, stack, "orders", 20), 30)
    eventually(partial(is_committed, stack, "orders", 86))
    assert bridge.metric("bridge_expired_records_total", topic=stack.topic("orders")) == 61
    found = audit(stack, code=1)
    (change,) = found["log_changes"]
    assert (change["what"], change["first"], change["end"], change["lost"]) == ("expired", 5, 66, 61)
    assert (found["done"], found["unaccounted"]) == (20, 0)
    (problem,) = json_of(stack, "status")["problems"]
    assert "retention deleted 61 records" in problem
    assert worker.exit_code is None


@pytest.mark.slow
def test_no_rebalance_and_no_stop_waits_for_an_answer_that_comes_after_it(stack: Stack):
    stack.make_topics("orders", partitions=4)
    one = stack.bridge()
    stack.produce("orders", *range(40))
    eventually(partial(is_committed, stack, "orders", 40))
    two = stack.bridge()
    eventually(lambda: one.count("revoked:"), 20)
    stack.produce("orders", *range(40))
    eventually(partial(is_committed, stack, "orders", 80))
    for bridge in (one, two):
        assert bridge.terminate() == 0
        assert bridge.count("Kafka did not answer") == 0
