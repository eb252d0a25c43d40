"""`bridge check`: everything that is wrong, at once."""

import json
import sys
import time
from contextlib import closing
from typing import Any

import pytest
import redis

from bridge.kafka.consumer_groups import find_first_reads
from bridge.operator_actions.offset_reset import _move
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.processes import Stack
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

SECRET = "hunter2-hunter2"


def check(stack: Stack, *options: str, code: int, **environ: Any) -> Any:
    done = stack.start("check", sys.executable, "-m", "bridge", "check", *options, **environ)
    assert done.ends(40) == code, done.text
    return done.text


def test_what_is_right_is_said_and_exits_0(stack: Stack):
    stack.make_topics("orders")
    found = json.loads(check(stack, "--json", code=0))
    (warning,) = (finding["text"] for finding in found if finding["level"] != "ok")
    assert "No worker consumes queue" in warning
    text = " ".join(finding["text"] for finding in found)
    for words in ("tests.handlers.simple.work", "Kafka at", "the Celery broker at", "the ledger at"):
        assert words in text


def test_a_topic_that_does_not_exist_yet_is_a_warning(stack: Stack):
    assert "does not exist yet" in check(stack, code=0)


def test_everything_that_is_wrong_is_listed_at_once(stack: Stack):
    wrong: dict[str, Any] = {
        "CELERY_CONFIG_MODULE": "tests.handlers.wrong",
        "HANDLERS": "tests.handlers.simple,not.there,tests.handlers.nor_this",
        "BRIDGE_GROUP": "bad name",
        "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "KAFKA_SASL_PASSWORD": SECRET,
        "CELERY_BROKER_URL": f"redis://:{SECRET}@127.0.0.1:1/0",
    }
    text = check(stack, code=1, **wrong)
    for words in (
        "task_acks_late = True",
        "kafka_pause_above",
        "BRIDGE_GROUP may hold",
        "'not.there' cannot be imported",
        "'tests.handlers.nor_this' cannot be imported",
        "Check KAFKA_BOOTSTRAP_SERVERS",
        "Check CELERY_BROKER_URL",
    ):
        assert words in text
    assert SECRET not in text
    assert "Traceback" not in text


def test_a_redis_that_would_lose_messages_is_a_warning_and_the_worker_starts_all_the_same(stack: Stack):
    stack.make_topics("orders")
    with RedisServer(appendonly="no") as server:
        found = json.loads(check(stack, "--json", code=0, CELERY_BROKER_URL=server.url))
        warnings = [finding["text"] for finding in found if finding["level"] == "warning"]
        assert sum("appendonly" in text for text in warnings) == 1
        worker = stack.worker(CELERY_BROKER_URL=server.url)
        assert "appendonly" in worker.text
        assert worker.terminate() == 0


def test_a_policy_that_evicts_is_a_warning_while_nothing_limits_the_memory(stack: Stack):
    stack.make_topics("orders")
    with RedisServer(maxmemory_policy="volatile-lru") as server:
        for names in (["CELERY_BROKER_URL"], ["LEDGER_URL"]):
            found = json.loads(check(stack, "--json", code=0, **dict.fromkeys(names, server.url)))
            (warning,) = (
                each["text"] for each in found if "volatile-lru" in each["text"] and each["level"] == "warning"
            )
            assert "a maxmemory is set" in warning.lower()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru"])
def test_with_a_redis_that_evicts_nothing_starts_and_config_need_not_be_allowed(stack: Stack, policy: str):
    stack.make_topics("orders")
    with RedisServer(maxmemory_policy=policy, maxmemory="64mb") as server:
        with server.client() as client:
            client.acl_setuser("default", enabled=True, nopass=True, commands=["-config"])
        found = json.loads(check(stack, "--json", code=1, CELERY_BROKER_URL=server.url))
        (fault,) = (finding["text"] for finding in found if finding["level"] == "fault")
        assert f"maxmemory-policy is {policy}" in fault
        with RedisServer() as broker:
            urls = {"CELERY_BROKER_URL": broker.url, "LEDGER_URL": server.url}
            assert f"maxmemory-policy {policy}" in check(stack, code=1, **urls)
        for name, command in {
            "bridge": ["-m", "bridge"],
            "worker": ["-m", "celery", "-A", "tasks", "worker", "--pool", "solo"],
        }.items():
            process = stack.start(name, sys.executable, *command, CELERY_BROKER_URL=server.url)
            assert process.ends(30) == 1, process.text
            assert f"maxmemory-policy {policy}" in process.text
            assert "Traceback" not in process.text


def test_dead_letters_are_kept_without_end_where_the_bridge_makes_their_topic(stack: Stack):
    stack.make_topics("orders")
    stack.bridge()
    found = json.loads(check(stack, "--json", code=0))
    name = stack.topic("orders.dlq")
    assert f"dead letters in '{name}' are kept without end (retention.ms)." in [each["text"] for each in found]


def test_a_topic_that_kafka_refuses_keeps_no_other_from_being_made_and_is_a_fault(stack: Stack):
    # Kafka takes no two names that differ in dots and underscores alone.
    stack.make_topics("orders", "orders_dlq")
    letters = stack.topic("orders.dlq")
    bridge = stack.bridge()
    bridge.says(f"topic '{letters}' could not be created: ")
    bridge.says(f"topic '{stack.topic('orders.replay')}' created for records that are sent back")
    found = json.loads(check(stack, "--json", code=1))
    (fault,) = (finding["text"] for finding in found if finding["level"] == "fault")
    assert "Kafka has refused to create 1 topic of the group, since " in fault
    assert f": '{letters}'" in fault
    (missing,) = (finding["text"] for finding in found if "missing although a bridge has run" in finding["text"])
    assert letters in missing


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"KAFKA_SASL_MECHANISM": "NONSENSE", "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"},
            "Unsupported SASL mechanism",
        ),
        ({"CELERY_BROKER_URL": "redis://localhost:notaport/0"}, "host or port cannot be read"),
        ({"CELERY_BROKER_URL": f"redis://:{SECRET}/x@127.0.0.1:1/0"}, "host or port cannot be read"),
        ({"CELERY_BROKER_URL": "redis://[::1/0"}, "host or port cannot be read"),
        ({"CELERY_BROKER_URL": "nonsense://x"}, "begins with no known scheme. Write redis://"),
    ],
    ids=["mechanism", "port", "password", "address", "transport"],
)
@pytest.mark.parametrize(
    "command", ["check", pytest.param("status", marks=pytest.mark.slow), pytest.param("run", marks=pytest.mark.slow)]
)
def test_what_no_client_can_be_made_of_is_a_fault_among_the_others(
    stack: Stack, environ: dict[str, str], words: str, command: str
):
    both: dict[str, Any] = {**environ, "HANDLERS": "tests.handlers.simple,not.there"}
    done = stack.start(command, sys.executable, "-m", "bridge", command, **both)
    assert done.ends(20) == (1 if command == "check" else 2), done.text
    assert words in done.text
    assert "'not.there' cannot be imported" in done.text
    assert "Traceback" not in done.text
    assert SECRET not in done.text


def test_a_redis_that_is_full_is_a_fault(stack: Stack):
    stack.make_topics("orders")
    with RedisServer(maxmemory_policy="noeviction") as server:
        with closing(redis.Redis.from_url(server.url)) as client:
            # It held a ledger before: of an empty one it is seen by what cannot be written.
            assert check(stack, code=0, CELERY_BROKER_URL=server.url)
            client.config_set("maxmemory", 1_000)
        found = json.loads(check(stack, "--json", code=1, CELERY_BROKER_URL=server.url))
        (fault,) = [finding["text"] for finding in found if finding["level"] == "fault"]
        assert "is full" in fault


@pytest.mark.parametrize(("command", "code"), [("check", 1), ("status", 0)])
def test_a_redis_that_is_frozen_is_told_within_seconds(stack: Stack, command: str, code: int):
    stack.make_topics("orders")
    with RedisServer() as server:
        server.freeze()
        try:
            started = time.monotonic()
            done = stack.start(command, sys.executable, "-m", "bridge", command, CELERY_BROKER_URL=server.url)
            assert done.ends(40) == code, done.text
            assert time.monotonic() - started < 30
            assert "Traceback" not in done.text
        finally:
            server.thaw()


def test_a_new_group_is_told_what_it_is_about_to_read_and_where_others_are(stack: Stack):
    stack.make_topics("orders")
    stack.produce("orders", *range(12))
    topic = stack.topic("orders")
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": stack.kafka})
    renamed = settings.of_group(f"{topic}-renamed")
    (first,) = find_first_reads(renamed, [topic])
    assert first.words == f"new group '{topic}-renamed' on topic '{topic}': 12 records from the beginning."
    _move(settings.of_group(f"{topic}-old"), topic, {0: 12})
    _move(settings.of_group(f"{topic}-slow"), topic, {0: 5})
    (first,) = find_first_reads(renamed, [topic])
    assert first.is_surprising
    others = f"group '{topic}-old' is at the end; group '{topic}-slow' has 7 left to read"
    assert f": 12 records from the beginning; {others}. If this group takes the place" in first.words
    # A group that has been here is told nothing.
    assert find_first_reads(settings.of_group(f"{topic}-slow"), [topic]) == []


def test_check_and_the_log_of_the_first_bridge_say_how_many_records_a_new_group_is_about_to_read(stack: Stack):
    stack.make_topics("orders")
    stack.produce("orders", *range(12))
    words = f"on topic '{stack.topic('orders')}': 12 records from the beginning."
    found = json.loads(check(stack, "--json", code=0))
    assert [finding["level"] for finding in found if words in finding["text"]] == ["ok"]
    stack.bridge().says(words)
