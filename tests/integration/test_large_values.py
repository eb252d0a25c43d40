"""A value too large for the database lies in Kafka alone: it is shown and sent from there, while it is there."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.delivery_checks import command, json_in, json_of
from tests.integration.test_replay import COMPLETION, start
from tests.processes import Stack, eventually

pytestmark = [pytest.mark.usefixtures("desk_url"), pytest.mark.slow, pytest.mark.timeout(300)]


def drop(stack: Stack, topic: str, below: int) -> None:
    """Have Kafka drop the first records of a topic."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    (deleted,) = admin.delete_records([TopicPartition(stack.topic(topic), 0, below)]).values()
    deleted.result(10)


def test_it_is_shown_and_sent_back_as_it_is_and_where_kafka_has_dropped_it_that_is_said(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "many", settings={"kafka_deadletters_largest_value": 1_000}, many=COMPLETION)
    # The letters lie in the order in which they are dead.
    for name in ("gone", "there"):
        stack.produce("many", {"mend": str(mended), "id": name, "pad": "x" * 5_000})
        eventually(lambda: len(stack.records("many.dlq")) == 1 + (name == "there"), 40)  # noqa: B023
    command(stack, "deadletters", "record", "--once")
    value = (stack.records("many.dlq")[0].value() or b"").decode()
    assert len(value) > 5_000
    # Its standard error, where nothing is said, goes into the same file.
    assert command(stack, "deadletters", "show", "1", "--value") == value
    shown = json_of(stack, "deadletters", "show", "1")
    assert (shown["kept"], shown["value"]) == (True, value)
    assert f"value, {len(value):,} bytes, JSON" in command(stack, "deadletters", "show", "1")
    drop(stack, "many.dlq", 1)
    assert "Kafka does not have it any more" in command(stack, "deadletters", "show", "1", "--value", code=1)
    shown = json_of(stack, "deadletters", "show", "1")
    assert (shown["kept"], shown["value"], shown["value_size"]) == (False, None, len(value))
    assert f"value, {len(value):,} bytes: too large for the database" in command(stack, "deadletters", "show", "1")
    mended.touch()
    found = json_of(stack, "deadletters", "replay", "--yes", "--wait", code=3)
    assert found["counts"]["too_old"] == 1
    assert found["outcomes"] == {"done": 1, "refused": 1}
    where = f"its value is no longer in Kafka, at {stack.topic('many.dlq')}-0-0"
    assert found["left_out"] == [{"state": "refused", "why": where, "letters": 1}]
    listed = command(stack, "deadletters", "list", "--json")
    statuses = {each["id"]: each["status"] for each in json_in(listed)}
    assert statuses == {1: "open", 2: "resolved"}
    assert [run.value["id"] for run in stack.runs("many") if run.outcome == "done"] == ["there"]
