"""What `bridge status` says at night: what is broken, since when, how many, and what to do."""

import re
import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import HOUR_UNIT, read_history
from tests.delivery_checks import audit, command, json_of
from tests.processes import Stack, eventually
from tests.project_process import children
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

NAME = "tests.handlers.simple.work"
SINCE = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def status(stack: Stack, **environ: str) -> dict[str, Any]:
    """`bridge status --json`, which exits 0."""
    before, stack.environ = stack.environ, {**stack.environ, **environ}
    try:
        found: dict[str, Any] = json_of(stack, "status")
    finally:
        stack.environ = before
    return found


@pytest.mark.slow
def test_nothing_needs_a_person_and_then_all_workers_are_down(stack: Stack):
    stack.make_topics("orders")
    worker = stack.worker()
    bridge = stack.bridge()
    stack.produce("orders", {"id": 1})
    eventually(lambda: stack.done(), 20)
    eventually(lambda: bridge.metric("bridge_workers") == 1, 20)
    found = status(stack)
    assert found["problems"] == []
    assert found["halted"] == {}
    (announced,) = found["workers"].values()
    assert announced["handlers"] == [NAME]
    assert announced["processes"] == 2
    (queue,) = announced["queues"]
    assert {**found["queues"][queue], "backlog": None} == {"messages": 0, "workers": 1, "backlog": None}
    assert "nothing needs a person" in command(stack, "status")
    (counts,) = eventually(lambda: c if sum((c := status(stack)["counts"])[0]["hours"]["handled"]) else None, 30)
    assert (counts["topic"], counts["handler"]) == (stack.topic("orders"), NAME)
    assert (sum(counts["minutes"]["handled"]), sum(counts["minutes"]["failed"])) == (1, 0)
    with closing(Ledger(stack.broker, "", f"{stack.prefix}.group")) as ledger:
        day = read_history(ledger, [(stack.topic("orders"), NAME)], HOUR_UNIT, 24, time.time())
    assert sum(map(sum, day.durations)) == 1, "the worker has counted how long the run took"

    assert worker.terminate() == 0
    stack.produce("orders", {"id": 2}, {"id": 3})
    eventually(lambda: bridge.metric("bridge_queue_messages", queue=queue) == 2, 20)
    (problem,) = status(stack)["problems"]
    assert re.search(rf"No worker consumes queue '{queue}', {SINCE}", problem)
    assert "2 messages wait there" in problem
    assert "celery -A tasks worker" in problem
    eventually(lambda: bridge.metric("bridge_workers", queue=queue) == 0, 20)
    assert "fault  No worker consumes queue" in command(stack, "check", code=1)
    assert bridge.metric("bridge_oldest_delivery_seconds", topic=stack.topic("orders"), handler=NAME) >= 0
    bridge.says("No worker consumes queue")
    assert bridge.terminate() == 0
    problems = status(stack)["problems"]
    assert re.search(rf"No bridge of group '{stack.prefix}.group' runs, {SINCE}", problems[0])


@pytest.mark.slow
def test_handlers_that_nobody_knows_are_named_by_status_check_and_the_bridge(stack: Stack):
    stack.make_topics("orders")
    stack.worker(HANDLERS="tests.handlers.plain")
    bridge = stack.bridge()
    bridge.says(f"No worker knows handler {NAME}")
    (problem,) = status(stack)["problems"]
    assert f"No worker knows handler {NAME}" in problem
    assert "Deploy it to the workers" in problem
    assert f"No worker knows handler {NAME}" in command(stack, "check")

    # Another application, with the same group: each record reaches the handlers of one of them.
    (record,) = stack.produce("orders", {"id": 1})
    eventually(lambda: stack.committed("orders") == 1, 20)
    stack.environ = {**stack.environ, "HANDLERS": "tests.handlers.plain"}
    other = "tests.handlers.plain.greet"
    assert any(
        f"{other} (here)" in problem and "its own BRIDGE_GROUP" in problem for problem in status(stack)["problems"]
    )
    assert "its own BRIDGE_GROUP" in command(stack, "check")
    (line,) = [each for each in audit(stack)["lines"] if each["handler"] == other]
    assert (line["expired"], line["open"]) == (0, 1)
    wheres = {each["handler"]: each["where"] for each in json_of(stack, "find", record)["deliveries"]}
    assert wheres[other] == f"{stack.topic('orders')}-0, before this handler joined"
    stack.bridge(wait=False).says("its own BRIDGE_GROUP")


@pytest.mark.slow
def test_dead_letters_and_failures_are_told_with_their_number_their_age_and_the_last_error(stack: Stack):
    stack.make_topics("orders")
    stack.worker(TEST_DELAY="100")
    stack.bridge()
    stack.produce("orders", {"dead": "no such card"}, {"dead": "no such card"}, {"id": 1})
    stack.dead("orders", 2)
    (problem,) = eventually(lambda: status(stack)["problems"], 20)
    assert re.search(rf"2 deliveries of {NAME} are dead, {SINCE}", problem)
    assert "no such card" in problem
    assert stack.topic("orders.dlq") in problem

    stack.produce("orders", *({"fail": True} for _ in range(100)))
    waits = "; 100 deliveries wait for a retry; the last error: ConnectionError: always."
    failing = eventually(lambda: next((each for each in status(stack)["problems"] if waits in each), None), 45)
    assert re.match(rf"(?:Every attempt|Attempts) of {NAME} fails?, {SINCE} \(", failing)


@pytest.mark.slow
def test_a_transaction_that_stays_open_is_said_by_status_check_audit_and_the_metrics_until_it_ends(stack: Stack):
    stack.make_topics("orders")
    topic = stack.topic("orders")
    stack.environ["HANDLERS"] = "tests.handlers.impatient"
    stack.worker()
    bridge = stack.bridge()
    stack.produce("orders", {"id": 0})
    eventually(lambda: stack.committed("orders") == 1, 20)
    assert audit(stack)["open_transactions"] == []
    producer = Producer({"bootstrap.servers": stack.kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b'{"id": 1}')
    producer.flush(10)
    stack.produce("orders", {"id": 2}, {"id": 3})

    (problem,) = eventually(lambda: status(stack)["problems"], 40, "status names the transaction")
    assert re.search(rf"An open transaction holds back topic '{topic}', {SINCE}", problem)
    assert f"withholds 3 records, the transaction's own among them ({topic}-0 from offset 1 on)" in problem
    assert "kafka-transactions.sh find-hanging" in problem
    assert "warning  An open transaction holds back topic" in command(stack, "check")
    assert audit(stack)["open_transactions"] == [{"partition": 0, "offset": 1, "records": 3}]
    assert f"{topic}-0: a transaction that began at offset 1 is open: 3 offsets" in command(stack, "audit", topic)
    eventually(lambda: bridge.metric("bridge_problems", problem="transaction_open") == 1, 20)

    producer.commit_transaction(30)
    eventually(lambda: stack.committed("orders") == 5, 30)
    eventually(lambda: not status(stack)["problems"], 20, "nothing needs a person any more")
    assert audit(stack)["open_transactions"] == []


@pytest.mark.slow
def test_with_kafka_away_status_tells_what_redis_knows(stack: Stack):
    stack.make_topics("orders")
    stack.worker()
    bridge = stack.bridge()
    found = status(stack, KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")
    assert found["topics"] is None
    assert len(found["bridges"]) == len(found["workers"]) == 1
    assert any("Kafka" in sentence for sentence in found["unanswered"])
    assert any("Kafka" in problem for problem in found["problems"])
    assert bridge.exit_code is None


def test_with_redis_away_status_tells_what_kafka_knows(stack: Stack):
    stack.make_topics("orders")
    stack.produce("orders", 1, 2)
    found = status(stack, CELERY_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert found["topics"][stack.topic("orders")]["0"]["end"] == 2
    assert found["bridges"] is found["workers"] is found["queues"] is found["parked"] is None
    assert any("CELERY_BROKER_URL" in problem for problem in found["problems"])


@pytest.mark.slow
def test_with_redis_full_status_still_knows_that_a_bridge_runs_and_says_what_is_wrong(
    stack: Stack, own_redis: RedisServer
):
    stack.make_topics("orders")
    stack.environ["CELERY_BROKER_URL"] = own_redis.url
    bridge = stack.bridge()
    with own_redis.client() as client:
        client.config_set("maxmemory", 1)
        stack.produce("orders", *range(3))
        bridge.says("deliveries cannot be handed off")
        # Longer than an announcement holds.
        announced = next(iter(client.scan_iter("ledger:members:bridges:*:of:*")))
        client.pexpire(announced, 1)
        eventually(lambda: client.exists(announced), 20, "the bridge announces itself in a full Redis")
    found = eventually(lambda: f if (f := status(stack))["bridges"] else None, 20)
    (state,) = found["bridges"].values()
    assert any("cannot be handed off" in text for text in state["obstacles"])
    (problem,) = (each for each in found["problem_values"] if each["kind"] != "no worker")
    assert problem["id"] == "redis_memory_or_disk"
    assert re.match(rf"Redis at \S+ is full, {SINCE} \(.+\): .* 1 of 1 bridge consumes nothing\.", problem["sentence"])
    assert found["unanswered"] == []


def problem_values(stack: Stack, kind: str) -> list[dict[str, Any]]:
    return [each for each in status(stack)["problem_values"] if each["kind"] == kind]


@pytest.mark.slow
def test_a_release_of_which_every_attempt_fails_is_said_within_thirty_seconds_whatever_waits(stack: Stack):
    stack.make_topics("orders")
    stack.worker(TEST_DELAY="20")
    stack.bridge()
    stack.produce("orders", *({"id": number} for number in range(20)))
    eventually(lambda: len(set(stack.done())) == 20, 30)
    assert problem_values(stack, "failing") == []
    stack.produce("orders", *({"fail": True, "sleep": 0.2} for _ in range(600)))
    (problem,) = eventually(lambda: problem_values(stack, "failing"), 60)
    age = re.search(rf"Every attempt of {NAME} fails, {SINCE} \((\d+) s\)", problem["sentence"])
    assert age is not None, problem["sentence"]
    assert int(age[1]) <= 30
    assert "ConnectionError: always" in problem["sentence"]
    assert (problem["id"], problem["handler"]) == ("handler_failing", NAME)
    assert len(stack.runs("work")) < 600, "the backlog is not run yet"


@pytest.mark.slow
def test_a_handler_that_hangs_is_named_with_its_process_and_its_record(stack: Stack):
    stack.make_topics("orders")
    worker = stack.worker()
    stack.bridge()
    stack.produce("orders", {"id": 1})
    eventually(stack.done, 30)
    hanging = stack.produce("orders", {"sleep": 300}, {"sleep": 300})
    (problem,) = eventually(lambda: problem_values(stack, "hung"), 60)
    found = re.search(
        rf"Handler {NAME} hangs, {SINCE} \((\d+) s\): 2 of 2 processes .* the oldest (\S+) in process (\d+) of",
        problem["sentence"],
    )
    assert found is not None, problem["sentence"]
    assert int(found[1]) <= 30
    assert found[2] in hanging
    assert int(found[3]) in children(worker)
    worker.kill()
