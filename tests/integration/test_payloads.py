"""Values that the desk's database is too small for are read from Kafka: a letter's own, or none."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import select

from bridge.deadletters.db import letter_payload
from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.replay.kafka_lookup import ValueAway, fetch_payloads
from tests.delivery_checks import delete_topic
from tests.desk_of_stack import desk, record
from tests.processes import Stack, eventually

ORIGIN = {"origin_topic": b"many", "origin_partition": b"0", "handler": b"many", "bridge_group": b"group"}


def away(here: DeadLetterService) -> list[ValueAway]:
    """All letters."""
    with here.database.reading() as connection:
        ids = list(connection.execute(select(letters.c.id).order_by(letters.c.id)).scalars())
        standing = letter_payload.read_letter_standings(connection, ids)
        return [ValueAway(standing[each.id], each) for each in letter_payload.read_letter_contents(connection, 0, ids)]


def made_again(stack: Stack, topic: str) -> None:
    delete_topic(stack, topic)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    eventually(lambda: stack.topic(topic) not in admin.list_topics(timeout=10).topics, 30)
    stack.make_topics(topic)


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        ({**ORIGIN, "origin_offset": b"7"}, {**ORIGIN, "origin_offset": b"8"}),
        ({"trace": b"1"}, {"trace": b"2"}),
    ],
    ids=["a letter of ours", "another program's"],
)
def test_of_a_topic_that_was_made_again_no_other_letters_value_is_taken(
    stack: Stack, ours: dict[str, Any], other: dict[str, Any]
):
    stack.make_topics("many.dlq")
    stack.produce("many.dlq", b"first" * 100, key=b"a", headers=ours)
    with desk(stack, "many") as here:
        chosen = here.settings.file.model_copy(update={"kafka_deadletters_largest_value": 100})
        here = replace(here, settings=replace(here.settings, file=chosen))
        record(stack, here, "many", 1)
        (letter,) = away(here)
        assert letter.content.away
        assert fetch_payloads(here.settings, [letter]) == {letter.letter.id: b"first" * 100}
        shown = here.letters.one(letter.letter.id)
        assert (shown.kept, fetch_letter_value(here.settings, shown).value) == (False, b"first" * 100)
        made_again(stack, "many.dlq")
        assert fetch_payloads(here.settings, [letter]) == {}
        stack.produce("many.dlq", b"other" * 100, key=b"a", headers=other)
        assert fetch_payloads(here.settings, [letter]) == {}
        assert fetch_letter_value(here.settings, shown) == shown
