"""Any record can be looked at and compared with the last good one, and what blocks a partition is named: on servers."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.embedded import EmbeddedKafka
from bridge.errors import KafkaUnavailable, NoSuchRecord
from bridge.inspection.blocking_records import find_blocking_records
from bridge.inspection.record_content import read_record_content
from bridge.inspection.record_search import SearchResult, find_records_by_key
from bridge.jobs.open_transactions import find_open_transactions
from bridge.kafka.record_reader import UNLIMITED, ReadLimits
from bridge.ledger import Fate
from tests.delivery_checks import command, json_of
from tests.desk_of_stack import desk, record
from tests.integration.test_replay import start
from tests.mock_leaders import take_leader
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.web.conftest import signed_in

HOLD = {"commit": "completion", "order": "key", "after_dead": "hold"}


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture
def here(stack: Stack) -> Iterator[DeadLetterService]:
    """A desk of the topic `keyed`."""
    with desk(stack, "keyed", keyed=HOLD) as opened:
        yield opened


def absence(here: DeadLetterService, topic: str, offset: int, partition: int = 0) -> str:
    """Why Kafka gives no record there."""
    with pytest.raises(NoSuchRecord) as refused:
        read_record_content(here.settings, topic, partition, offset)
    return str(refused.value)


def test_a_record_that_did_not_fail_has_its_content_in_console_api_and_terminal(stack: Stack, here: DeadLetterService):
    stack.make_topics("keyed")
    headers = [("trace", b"7"), ("raw", b"\xff")]
    (place,) = stack.produce("keyed", {"id": 1, "name": "Zoë"}, key=b"4711", headers=headers)
    stack.environ |= {"CELERY_CONFIG_MODULE": "tests.handlers.chosen", "HANDLERS": "tests.handlers.fates"}
    stack.environ |= {"TEST_TOPICS": json.dumps({"keyed": HOLD}), "TEST_SETTINGS": "{}"}
    topic = stack.topic("keyed")
    with signed_in(Console(here, "shop"), Role.VIEWER) as client:
        page = words(client.get(f"/topics/{topic}/records/0/0").text)
        assert "Zoë" in page
        assert "key 4711 , 4 bytes" in page
        assert "trace 7 1" in page
        assert "ff hex" in page
        found = client.get(f"/find?topic={topic}&q=0-0").text
        assert f'data-part="/topics/{topic}/records/0/0/content"' in found
        assert "Zoë" in words(client.get(f"/topics/{topic}/records/0/0/content").text)
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() - 3_600))
        assert "1 record from this time on" in words(client.get("/find", params={"q": f"{topic} {at}"}).text)
        later = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() + 3_600))
        assert client.get("/find", params={"q": f"{topic} {later}"}).status_code == 404
        assert client.get(f"/topics/{topic}.dlq/records/0/0").status_code == 404
        assert "the group's topics alone" in words(client.get("/topics/__consumer_offsets/records/0/0").text)
    printed = command(stack, "find", place, "--value")
    assert 'header trace: 7\n  header raw: 0xff\n  value:\n{"id": 1, "name": "Zo\\u00eb"}' in printed
    content = json_of(stack, "find", place, "--value")["content"]
    assert content["value"]["data"] == '{"id": 1, "name": "Zo\\u00eb"}'
    assert [each["name"] for each in content["headers"]] == ["trace", "raw"]
    (by_time,) = json_of(stack, "find", "--topic", topic, "--at", at.replace(" ", "T") + "Z", "--value")
    assert by_time["content"] == content


def test_a_record_that_is_not_there_says_why_by_its_cause(stack: Stack, here: DeadLetterService):
    stack.make_topics("keyed")
    stack.make_topics("packed", config={"cleanup.policy": "compact"})
    topic = stack.topic("keyed")
    stack.produce("keyed", *range(4))
    producer = Producer({"bootstrap.servers": stack.kafka, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"1")
        producer.flush(10)
        end(30)
        # The marker is written after the answer.
        eventually(lambda: not find_open_transactions(here.settings, [(topic, 0)]), 20)
    (last,) = stack.produce("keyed", {"id": 9})
    assert last == f"{topic}-0-8"
    # 4 is a record, 5 the marker of its commit, 6 was taken back, and 7 is the marker of that.
    assert read_record_content(here.settings, topic, 0, 4).value == b"1"
    assert absence(here, topic, 5) == (
        f"{topic}-0-5 holds the marker of a transaction, an entry of Kafka's own: no record was ever there."
    )
    assert absence(here, topic, 6).startswith(f"{topic}-0-6 was written in a transaction that its producer aborted")
    assert absence(here, topic, 9) == f"{topic}-0-9 is not written yet: the next record of {topic}-0 gets offset 9."
    assert absence(here, topic, 0, 7) == f"{topic} has no partition 7: its partitions are 0 to 0."
    assert absence(here, f"{topic}x", 0).startswith(f"Kafka has no topic {topic}x")
    producer.begin_transaction()
    producer.produce(topic, b"2")
    producer.flush(10)
    assert "lies behind an open transaction of a producer, which began at offset 9" in absence(here, topic, 9)
    producer.abort_transaction(30)
    delete_records(stack, topic, 2)
    assert "was deleted: Kafka's first record of" in absence(here, topic, 1)
    packed = stack.topic("packed")
    other = Producer({"bootstrap.servers": stack.kafka, "transactional.id": packed})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(packed, b"1", key=b"k")
    other.commit_transaction(30)
    eventually(lambda: not find_open_transactions(here.settings, [(packed, 0)]), 20)
    stack.produce("packed", {"id": 1}, key=b"k")
    assert "compaction has removed it" in absence(here, packed, 1)


def test_a_partition_without_a_leader_and_a_broker_that_is_down_have_sentences_of_their_own(
    redis_url: str, topic_prefix: str, tmp_path: Path
):
    with (
        EmbeddedKafka() as kafka,
        Stack(kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "tests.handlers.simple") as stack,
    ):
        for partition in range(3):
            stack.produce("keyed", {"id": partition}, partition=partition)
        take_leader(kafka, stack.topic("keyed"), 1)
        with desk(stack, "keyed") as here:
            with pytest.raises(KafkaUnavailable, match=r"the partition has no leader\. Start the broker"):
                read_record_content(here.settings, stack.topic("keyed"), 1, 0)
            assert read_record_content(here.settings, stack.topic("keyed"), 2, 0).value == b'{"id": 2}'
    with desk(stack, "keyed") as here, signed_in(Console(here, "shop"), Role.VIEWER) as client:
        answer = client.get(f"/topics/{stack.topic('keyed')}/records/0/0")
        assert answer.status_code == 503
        assert "Kafka does not answer" in words(answer.text)


def test_a_dead_letter_is_compared_with_the_last_good_record_and_named_as_what_blocks_its_key(stack: Stack):
    start(stack, "keyed", keyed=HOLD)
    topic = stack.topic("keyed")
    stack.produce("keyed", {"id": 1, "currency": "EUR"}, key=b"a", headers=[("version", b"1")])
    stack.produce("keyed", {"id": 2, "currency": "USD"}, key=b"b")
    eventually(lambda: len(stack.done("keyed")) == 2, 30)
    (dead,) = stack.produce("keyed", {"id": 3, "currency": "eur", "dead": True}, key=b"a", headers=[("version", b"2")])
    waiting = stack.produce("keyed", {"id": 4}, {"id": 5}, key=b"a")
    with desk(stack, "keyed", keyed=HOLD) as here, signed_in(Console(here, "shop"), Role.VIEWER) as client:
        record(stack, here, "keyed", 1)
        eventually(lambda: json_of(stack, "find", dead)["deliveries"][0]["fate"] == "dead", 20)
        assert 'href="/letters/1/good"' in client.get("/letters/1").text
        same_key = words(client.get("/letters/1/good").text)
        assert f"It is {topic}-0-0" in same_key
        assert 'good: "currency": " EUR"' in same_key
        assert 'this: "currency": " eur", this: "dead": true' in same_key
        assert "good: version: 1" in same_key
        any_key = words(client.get(f"/topics/{topic}/records/0/2/good?by=handler").text)
        assert f"It is {topic}-0-1" in any_key
        assert 'good: "currency": " USD"' in any_key
        none = words(client.get(f"/topics/{topic}/records/0/0/good?by=key").text)
        assert "No good record was found." in none
        blocked = eventually(
            lambda: page if " 2 3, 4" in (page := words(client.get(f"/topics/{topic}/blocking").text)) else None, 20
        )
        assert f"0 {dead} a keyed dead" in blocked
        assert "Its dead letter holds its order: replay or discard it." in blocked
        report = find_blocking_records(here.settings, here.routes, topic)
        assert (report.records[0].offset, dict(report.records[0].fates)) == (2, {"keyed": Fate.DEAD})
        (lane,) = report.lanes
        assert (lane.head.key, lane.head.offset, lane.waiting, lane.fate) == (b"a", 2, (3, 4), Fate.DEAD)
        assert [f"{topic}-0-{offset}" for offset in lane.waiting] == waiting
        for first in (4, 5):
            # Retention passes the dead one, then all of them: what holds the key is still named.
            delete_records(stack, topic, first)
            blocked = words(client.get(f"/topics/{topic}/blocking").text)
            assert f"0 {dead}" in blocked
            assert "Its dead letter holds its order: replay or discard it." in blocked
            passed = find_blocking_records(here.settings, here.routes, topic).records[0]
            assert (passed.offset, dict(passed.fates), passed.content) == (2, {"keyed": Fate.DEAD}, None)


def delete_records(stack: Stack, topic: str, below: int) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    for answer in admin.delete_records([TopicPartition(topic, 0, below)]).values():
        answer.result(20)


def test_a_search_by_key_ends_at_its_limit_and_goes_on_where_it_ended(stack: Stack, here: DeadLetterService):
    stack.make_topics("keyed")
    topic = stack.topic("keyed")
    stack.produce("keyed", {"first": 1}, key=b"wanted")
    stack.produce("keyed", *range(3_000), key=b"other")
    stack.produce("keyed", {"last": 1}, key=b"wanted")

    def search(limits: ReadLimits, below: Mapping[int, int]) -> SearchResult:
        return find_records_by_key(here.app, here.settings, here.routes, topic, "wanted", limits, below)

    limited = search(ReadLimits(1_000, 1e9, 60), {})
    assert limited.limit == "1,000 records"
    assert [each["record"]["offset"] for each in limited.data] == [3_001]
    assert 0 < limited.looked_from[0] < 3_001
    rest = search(ReadLimits(100_000, 1e9, 60), limited.looked_from)
    assert [each["record"]["offset"] for each in rest.data] == [0]
    assert (rest.limit, dict(rest.looked_from)) == ("", {})
    few = find_records_by_key(here.app, here.settings, here.routes, topic, "other", UNLIMITED, {}, 5)
    assert [each["record"]["offset"] for each in few.data] == [*range(2_996, 3_001)]
    assert (few.limit, dict(few.looked_from)) == ("5 records of this key", {0: 2_996})


def test_a_broker_that_stops_is_said_while_a_page_is_open(mortal_stack: Stack, mortal_kafka: KafkaServer):
    mortal_stack.make_topics("keyed")
    mortal_stack.produce("keyed", {"id": 1})
    address = f"/topics/{mortal_stack.topic('keyed')}/records/0/0"
    with desk(mortal_stack, "keyed") as here, signed_in(Console(here, "shop"), Role.VIEWER) as client:
        assert client.get(address).status_code == 200
        mortal_kafka.kill()
        answer = client.get(address)
        assert answer.status_code == 503
        assert "Kafka does not answer" in words(answer.text)


def test_a_command_without_a_ledger_prints_the_content_alone(stack: Stack):
    stack.make_topics("orders")
    (place,) = stack.produce("orders", {"id": 1}, key=b"4711")
    stack.environ |= {"CELERY_BROKER_URL": "amqp://localhost:1//", "LEDGER_URL": ""}
    printed = command(stack, "find", place, "--value")
    assert "its deliveries are not known" in printed
    assert 'key: 4711\n  value:\n{"id": 1}' in printed
    assert json_of(stack, "find", place, "--value")["deliveries"] == []
    assert "is not written yet" in command(stack, "find", f"{stack.topic('orders')}-0-9", "--value", code=1)
    assert "there is no ledger" in command(stack, "find", place, code=2)
