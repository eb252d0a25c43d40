"""What handlers send is published once they have succeeded, before their deliveries are settled."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.delivery_checks import all_settled, choose
from tests.processes import Stack, eventually, headers_of
from tests.servers.kafka import KafkaServer


def ids(records: list[Any]) -> list[str]:
    return [(dict(headers_of(record))["message_id"] or b"").decode() for record in records]


@pytest.fixture
def sending(stack: Stack, tmp_path) -> Stack:
    database = tmp_path / "work.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE payments (id INTEGER)")
    stack.environ["TEST_DATABASE"] = f"sqlite:///{database}"
    choose(stack, {name: {"commit": "completion"} for name in ("sends", "sends_with_work")})
    stack.make_topics("sends", "sends_with_work", "invoices")
    return stack


def rows(stack: Stack, table: str) -> int:
    with closing(sqlite3.connect(stack.environ["TEST_DATABASE"].removeprefix("sqlite:///"), timeout=30)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


def test_what_a_handler_sends_is_there_when_it_is_done_and_a_failed_run_sends_nothing(sending: Stack):
    sending.bridge()
    sending.worker()
    placed = sending.produce(
        "sends", {"id": 1, "send": 2}, {"id": 2, "send": 1, "fail": 2}, {"id": 3, "send": 3, "fail": 9}
    )
    all_settled(sending, "sends", done=2, dead=1)
    sent = sending.records("invoices")
    assert sorted(json.loads(record.value() or b"")["id"] for record in sent) == [1, 1, 2]
    assert {record.key() for record in sent} == {b"1", b"2"}
    name = "tests.handlers.fates.send"
    known = [f"{placed[0]}:{name}:0", f"{placed[0]}:{name}:1", f"{placed[1]}:{name}:0"]
    assert sorted(found.partition("@")[0] for found in ids(sent)) == sorted(known)


@pytest.mark.slow
def test_work_that_was_committed_sends_though_its_process_was_killed_and_is_not_done_again(sending: Stack):
    sending.bridge()
    sending.worker()
    sending.produce("sends_with_work", {"id": 1, "send": 2, "kill": True}, {"id": 2, "send": 1, "fail": 1})
    all_settled(sending, "sends_with_work", done=2)
    assert sorted(json.loads(record.value() or b"")["id"] for record in sending.records("invoices")) == [1, 1, 2]
    assert rows(sending, "payments") == 2
    assert rows(sending, "bridge_outbox") == 0


@pytest.mark.slow
def test_a_message_that_no_topic_takes_makes_a_dead_letter_that_says_so(sending: Stack):
    sending.bridge()
    sending.worker()
    sending.produce("sends", {"id": 1, "send": 1, "large": True})
    (letter,) = sending.dead("sends", 1)
    assert letter.ours["reason"] == "permanent"
    assert "a message that its handler sends" in letter.ours["error_message"]


@pytest.mark.slow
def test_while_kafka_is_away_the_delivery_waits_with_what_it_sends_and_its_handler_rests(
    mortal_stack: Stack, mortal_kafka: KafkaServer, tmp_path
):
    stack, go_on = mortal_stack, tmp_path / "go on"
    stack.environ["KAFKA_MESSAGE_TIMEOUT_MS"] = "1000"
    choose(stack, {"sends": {"commit": "completion"}})
    stack.make_topics("sends", "invoices")
    stack.bridge()
    worker = stack.worker()
    stack.produce("sends", {"id": 1, "send": 1, "hold": str(go_on)})
    eventually(lambda: stack.runs("send"), 30)
    mortal_kafka.freeze()
    go_on.touch()
    worker.says("Kafka did not take its messages")
    mortal_kafka.thaw()
    all_settled(stack, "sends", done=1)
    assert len(set(ids(stack.records("invoices")))) == 1
    assert len([run for run in stack.runs("send") if run.outcome == "begun"]) == 1
