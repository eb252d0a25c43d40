"""What other clients write and Python's cannot read."""

import json

import pytest
from confluent_kafka import Producer

from tests.delivery_checks import all_settled, audit
from tests.processes import Stack, eventually
from tests.raw_producer import produce_raw

WARM = 60


def test_a_record_that_pythons_client_cannot_read_is_a_dead_letter_and_its_neighbours_are_handled(calm: Stack):
    topic = calm.topic("odd")
    # Many before it: what the interpreter checks while code is new, it does not when it is warm.
    calm.produce("odd", *[{"id": -1}] * WARM, headers=[("trace", b"1"), ("fine", b"2")])
    for number in range(3):
        name = b"\xff\xfe" if number == 1 else b"fine"
        headers = [(b"trace", b"1"), (name, b"2")]
        produce_raw(calm.kafka, topic, b"key\xff", json.dumps({"id": number}).encode(), headers)
    all_settled(calm, "odd", done=4 + 2 * WARM, dead=2)
    assert f"{topic}-0-{WARM + 1}" not in calm.done("odd")
    assert [run.headers for run in calm.runs("odd_too") if run.outcome == "done"] == [
        (("trace", b"1"), ("fine", b"2"))
    ] * (WARM + 2)
    letter, other = calm.dead_letters("odd")
    assert {letter.ours["handler"], other.ours["handler"]} == {"odd", "odd_too"}
    assert letter.origin == other.origin == f"{topic}-0-{WARM + 1}"
    assert (letter.record.key(), letter.record.value(), letter.theirs) == (b"key\xff", b'{"id": 1}', [])
    assert letter.ours["reason"] == "undecodable"
    assert letter.ours["error_class"] == "bridge.errors.UnreadableRecord"
    assert f"{topic}-0-{WARM + 1}" in letter.ours["error_message"]
    assert "UTF-8" in letter.ours["error_message"]
    assert letter.ours["attempts"] == "0"


@pytest.mark.slow
def test_the_marker_of_a_transaction_at_the_log_s_end_is_no_lag_and_nothing_open(calm: Stack):
    topic = calm.topic("odd")
    calm.produce("odd", {"id": 0})
    eventually(lambda: calm.committed("odd") == 1, 20)
    producer = Producer({"bootstrap.servers": calm.kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in (1, 2):
        producer.produce(topic, json.dumps({"id": number}).encode())
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, json.dumps({"id": 3}).encode())
    producer.flush(10)
    producer.abort_transaction(30)
    # Three records, the marker of a commit, one that was taken back, and the marker of that.
    eventually(lambda: calm.committed("odd") == 6, 30)
    found = audit(calm, "odd")
    assert (found["open"], found["done"], found["unaccounted"]) == (0, 6, 0)
    assert {line["committed"] == line["end"] == 6 for line in found["lines"]} == {True}
    calm.produce("odd", {"id": 4})
    all_settled(calm, "odd", done=8)
