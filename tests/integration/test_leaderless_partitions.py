"""A partition without a leader hides nothing else: each report names it, and shows what can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.embedded import EmbeddedKafka
from tests.delivery_checks import command, json_of
from tests.mock_leaders import give_leader, take_leader
from tests.processes import Stack, eventually

NO_LEADER = "the partition has no leader"


@pytest.fixture
def embedded() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def lame(embedded: EmbeddedKafka, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """A topic of four partitions with a record each, of which the third has no leader."""
    with Stack(embedded.bootstrap_servers, redis_url, topic_prefix, tmp_path, "tests.handlers.simple") as stack:
        for partition in range(4):
            stack.produce("orders", {"number": partition}, partition=partition, key=b"k")
        take_leader(embedded, stack.topic("orders"), 2)
        yield stack


def test_the_status_shows_the_lag_of_all_other_partitions_and_names_it(lame: Stack):
    orders = lame.topic("orders")
    found = json_of(lame, "status")
    assert found["unanswered"] == []
    assert {number: at["lag"] for number, at in found["topics"][orders].items()} == {"0": 1, "1": 1, "3": 1}
    assert [(each["topic"], each["partition"]) for each in found["unreadable"]] == [(orders, 2)]
    (problem,) = (each for each in found["problem_values"] if each["id"] == "replicas_out_of_sync")
    assert (problem["many"], problem["topic"], problem["lost"]) == (1, orders, None)
    assert problem["sentence"].startswith(f"1 partition cannot be read ({orders}-2: {NO_LEADER}")
    assert "kafka-topics.sh --describe --unavailable-partitions" in problem["sentence"]


def test_an_audit_counts_all_other_partitions_and_is_not_clean(lame: Stack):
    orders = lame.topic("orders")
    found = json_of(lame, "audit", orders, code=2)
    assert [line["partition"] for line in found["lines"]] == [0, 1, 3]
    assert (found["clean"], [(each["topic"], each["partition"]) for each in found["unreadable"]]) == (
        False,
        [(orders, 2)],
    )
    printed = command(lame, "audit", orders, code=2)
    assert f"1 partition cannot be read ({orders}-2: {NO_LEADER}" in " ".join(printed.split())
    assert "nothing is unaccounted for" not in printed


def test_a_search_finds_what_is_in_all_other_partitions_and_says_what_it_could_not_read(lame: Stack):
    orders = lame.topic("orders")
    assert command(lame, "find", f"{orders}-1-0").startswith(f"{orders}-1-0, of")
    for words in ((f"{orders}-2-0",), ("--topic", orders, "--key", "k")):
        printed = command(lame, "find", *words, code=2)
        assert f"Kafka answers, and cannot read {orders}-2: {NO_LEADER}" in printed
        assert "no such record" not in printed
    assert [f"{orders}-{number}-0, of" in printed for number in range(4)] == [True, True, False, True]


@pytest.mark.slow
def test_what_is_parked_where_nobody_can_read_is_neither_found_nor_missing(
    embedded: EmbeddedKafka, redis_url: str, topic_prefix: str, tmp_path: Path
):
    handlers = "tests.handlers.simple"
    with Stack(embedded.bootstrap_servers, redis_url, topic_prefix, tmp_path, handlers, TEST_DELAY="300") as stack:
        orders, retry = stack.topic("orders"), stack.topic("orders.retry.5m")
        (record,) = stack.produce("orders", {"fail": True}, partition=1)
        bridge, worker = stack.bridge(), stack.worker()
        (parked,) = eventually(lambda: stack.records("orders.retry.5m"), 30, "it is parked")
        where = parked.partition()
        eventually(lambda: json_of(stack, "find", record)["deliveries"][0]["fate"] == "parked", 30)
        worker.kill()
        bridge.kill()
        take_leader(embedded, retry, where)
        found = json_of(stack, "audit", orders, code=2)
        assert [found[name] for name in ("parked", "unaccounted", "clean")] == [1, 0, False]
        assert [(each["topic"], each["partition"]) for each in found["unreadable"]] == [(retry, where)]
        (delivery,) = json_of(stack, "find", record, code=2)["deliveries"]
        assert delivery["fate"] == "parked"
        assert delivery["where"].startswith(f"not known: Kafka cannot read {retry}-{where}: {NO_LEADER}")
        status = json_of(stack, "status")
        assert [
            each["sentence"]
            for each in status["problem_values"]
            if f"cannot be read ({retry}-{where}" in each["sentence"]
        ]
        assert status["unanswered"] == []


def test_the_check_and_the_list_of_topics_name_it_as_a_fault(lame: Stack):
    orders = lame.topic("orders")
    for words in ("check", "topics"):
        printed = " ".join(command(lame, words, code=1).split())
        assert f"1 partition cannot be read ({orders}-2: {NO_LEADER}" in printed
        assert "Kafka does not answer" not in printed


def test_what_needs_every_partition_names_the_one_that_cannot_be_read(lame: Stack):
    orders = lame.topic("orders")
    printed = command(lame, "reset", orders, "--to", "earliest", "--yes", code=2)
    assert f"Kafka answers, and cannot read {orders}-2: {NO_LEADER}" in printed


@pytest.mark.slow
def test_a_bridge_consumes_the_other_partitions_is_ready_and_names_it(embedded: EmbeddedKafka, lame: Stack):
    orders = lame.topic("orders")
    bridge = lame.bridge()
    eventually(lambda: lame.waiting() == 3, 30, "three records are handed off")
    words = eventually(
        lambda: page if f"{orders}-2" in (page := bridge.get("/readyz")[1]) else None, 30, "it names the partition"
    )
    assert bridge.ready()
    assert f"cannot be read yet: {orders}-2: " in words
    paused = bridge.metric("bridge_partition_paused", topic=orders, reason="where to begin is not known yet")
    assert paused == 1
    give_leader(embedded, orders, 2)
    eventually(lambda: lame.waiting() == 4, 30, "the last is handed off")
    eventually(lambda: bridge.get("/readyz") == (200, "ok\n"), 10, "nothing is named any more")
