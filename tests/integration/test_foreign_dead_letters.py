"""Letters of a real Spring Kafka and a real Kafka Connect, read from where they lie."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from bridge.deadletters.db.table_definitions import letters
from bridge.formats import dead_letter_record, foreign_dead_letter
from bridge.formats.foreign_dead_letter import ForeignDeadLetter
from bridge.kafka.clients import headers_of
from tests.desk_of_stack import desk, recorder, replay
from tests.foreign.letters import HEADERS, PARTITION, ForeignTopic, letters_of
from tests.integration.test_replay import count
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer

DECLINED = "SpringLetters$CardDeclined"
UNDECODED = "org.springframework.kafka.support.serializer.DeserializationException"
pytestmark = pytest.mark.slow


@pytest.fixture
def found(kafka: KafkaServer, foreign_letters: Mapping[str, ForeignTopic]) -> Any:
    def read(name: str) -> dict[int | None, ForeignDeadLetter]:
        records = letters_of(kafka, foreign_letters[name].topic)
        assert [dead_letter_record.read_dead_letter_summary(record) for record in records] == [None] * foreign_letters[
            name
        ].letters
        read = [foreign_dead_letter.read_foreign_dead_letter(headers_of(record)) for record in records]
        assert {(one.topic, one.partition) for one in read} == {(foreign_letters[name].source, PARTITION)}
        assert {one.theirs for one in read} == {HEADERS}
        return {one.offset: one for one in read}

    return read


@pytest.mark.parametrize(
    ("name", "messages", "error_class", "attempts"),
    [
        ("plain", ["declined: visa", "declined: master"], DECLINED, 0),
        ("counted", ["declined: visa"], DECLINED, 3),
        ("retried", ["declined: visa"], DECLINED, 3),
        ("typed", ["failed to deserialize"] * 3, UNDECODED, 0),
    ],
)
def test_letters_that_spring_kafka_writes_say_where_they_come_from_and_why(
    found: Any, name: str, messages: list[str], error_class: str, attempts: int
):
    letters = found(name)
    assert set(letters) == set(range(len(messages)))
    for offset, message in enumerate(messages):
        letter = letters[offset]
        assert (letter.origin, letter.group, letter.attempts) == (foreign_dead_letter.SPRING, "billing", attempts)
        assert (letter.error_class, letter.reason) == (error_class, "")
        assert letter.error_message.endswith(message)
        assert f"{error_class}: {message}\n\tat " in letter.error_traceback
        assert letter.timestamp is not None


@pytest.mark.parametrize(
    ("name", "header", "kind"),
    [("plain", "kafka_dlt-original-topic", "CardDeclined"), ("sink", "__connect.errors.topic", "DataException")],
)
def test_they_are_recorded_grouped_and_go_back_to_their_topic_as_they_were(
    kafka: KafkaServer, stack: Stack, foreign_letters: Any, desk_url: str, name: str, header: str, kind: str
):
    stack.make_topics("orders", "theirs", "theirs-dlt", partitions=PARTITION + 1)
    lying = letters_of(kafka, foreign_letters[name].topic)
    for record in lying:
        # As they are, but of a source topic of this test.
        of = [(each, stack.topic("theirs").encode() if each == header else value) for each, value in headers_of(record)]
        stack.produce("theirs-dlt", record.value(), key=record.key(), headers=of)
    recorder(stack, "--topics", stack.topic("theirs-dlt"))
    with desk(stack) as here:
        eventually(lambda: count(here, letters) == len(lying), 60, "all are recorded")
        shown = [here.letters.one(number) for number in range(1, len(lying) + 1)]
        groups = {(each.listed.error_class, each.listed.place) for each in shown}
        assert any(kind in error and where for error, where in groups), groups
        plan = here.plans.wait(here.plans.apply(replay(here).id, "ann").id)
        assert (plan.counts.foreign, plan.outcomes) == (len(lying), {"done": len(lying)})
    back = stack.records("theirs")
    assert Counter((each.key(), each.value()) for each in back) == Counter((each.key(), each.value()) for each in lying)
    assert {(*headers_of(each)[:-1],) for each in back} == {HEADERS}
    assert {headers_of(each)[-1][0] for each in back} == {"dead_letter"}


def test_letters_that_kafka_connect_writes_say_where_they_come_from_and_why(found: Any):
    letters = found("sink")
    assert {(letter.origin, letter.group) for letter in letters.values()} == {
        (foreign_dead_letter.CONNECT, "warehouse")
    }
    assert (letters[0].reason, letters[1].reason) == ("VALUE_CONVERTER", "TASK_PUT")
    assert letters[0].error_class == "org.apache.kafka.connect.errors.DataException"
    assert letters[0].error_message.startswith("Converting byte[] to Kafka Connect data failed")
    assert letters[1].error_class == "java.lang.IllegalArgumentException"
    assert letters[1].error_message == "the table has no column for {amount=3}"
    assert "\n\tat RefusingSink$Refusal.put(RefusingSink.java:" in letters[1].error_traceback
