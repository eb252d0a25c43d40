"""2,000 records of every kind of ending, by another client, through the public commands alone."""

import json
from collections import Counter

import pytest

from tests.acceptance import kcat
from tests.processes import Stack, eventually, headers_of

#: kind → how many, and the reason of its dead letter.
KINDS: dict[str, tuple[int, str | None]] = {
    "done": (1100, None),
    "transient": (150, None),
    "later": (100, None),
    "exhausted": (150, "exhausted"),
    "declined": (100, "permanent"),
    "permanent": (100, "permanent"),
    "undecodable": (100, "undecodable"),
    "invalid": (100, "undecodable"),
    "tombstone": (96, None),
    "killed": (4, None),
}
KEY = bytes(range(1, 30))
HEADERS = ["kind=", "trace=a", "trace=größe", "timelimit=5", "handler=not.ours"]


def value(kind: str, number: int) -> bytes | None:
    match kind:
        case "tombstone":
            return None
        case "undecodable":
            return b"\xff\x00\xfe{" + bytes(range(32, 256)) + str(number).encode()
        case "invalid":
            return json.dumps({"id": f"n{number}", "end": "x" * 500}).encode()
        case _:
            return json.dumps({"id": number, "end": kind}).encode()


@pytest.mark.timeout(300)
def test_2000_records_of_every_kind_each_end_once_where_they_should(stack: Stack):
    assert sum(count for count, _ in KINDS.values()) == 2_000
    stack.environ["HANDLERS"] = "tests.handlers.shop"
    stack.make_topics("orders", "stream", partitions=4)
    stack.bridge()
    stack.worker()
    topic = stack.topic("orders")
    for kind, (count, _) in KINDS.items():
        values = [value(kind, number) for number in range(count)]
        kcat.produce(stack.kafka, topic, values, key=KEY, headers=[f"kind={kind}", *HEADERS[1:]])
    eventually(lambda: stack.committed("orders") == 2_000, 120)
    eventually(lambda: not stack.waiting() and not stack.held_ids(), 120, "everything has ended")

    produced = {f"{topic}-{record.partition()}-{record.offset()}": record for record in stack.records("orders")}
    assert len(produced) == 2_000
    kinds = {place: (dict(headers_of(record))["kind"] or b"").decode() for place, record in produced.items()}
    assert Counter(kinds.values()) == {kind: count for kind, (count, _) in KINDS.items()}

    alive = {place for place, kind in kinds.items() if KINDS[kind][1] is None}
    assert Counter(stack.done("charge")) == dict.fromkeys(alive, 1)
    assert Counter(stack.done("archive")) == dict.fromkeys(produced, 1)

    letters = {letter.origin: letter for letter in stack.dead_letters("orders")}
    assert len(stack.dead_letters("orders")) == len(letters)
    assert {place: letter.ours["reason"] for place, letter in letters.items()} == {
        place: KINDS[kind][1] for place, kind in kinds.items() if KINDS[kind][1]
    }
    for place, letter in letters.items():
        record = produced[place]
        assert (letter.record.key(), letter.record.value()) == (record.key(), record.value())
        assert letter.theirs == record.headers()
        assert letter.ours["origin_timestamp"] == str(record.timestamp()[1])
        assert letter.ours["handler"] == "tests.handlers.shop.charge"
        assert letter.ours["attempts"] == ("3" if kinds[place] == "exhausted" else "1")
