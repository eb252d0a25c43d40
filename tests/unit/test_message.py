"""Messages and deliveries, and how they travel."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import MalformedDelivery
from bridge.records.failure import Failure
from bridge.records.message import Batch, Dead, Delivery, Message, batch_id, from_header, label, to_header

names = st.text(st.characters(codec="utf-8"), max_size=20)
payloads = st.none() | st.binary(max_size=50)
milliseconds = st.integers(1, 2**53)
failures = st.builds(Failure, st.text(), st.text(), st.text(), milliseconds)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    topic, partition = draw(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)), draw(st.integers(0, 2**31 - 1))
    handler = draw(st.from_regex(r"[a-z_.]{1,30}", fullmatch=True))
    offsets = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4, unique=True))
    deliveries = tuple(
        Delivery(
            message=Message(
                topic,
                partition,
                offset,
                key=draw(payloads),
                value=draw(payloads),
                headers=tuple(draw(st.lists(st.tuples(names, payloads), max_size=4))),
                timestamp=draw(st.none() | st.integers(0, 2**53)),
            ),
            handler=handler,
            number=draw(st.integers(0, 1000)),
            attempts=draw(st.integers(0, 1000)),
            failures=draw(st.integers(0, 1000)),
            first_failed_at=draw(st.none() | milliseconds),
            dead=draw(st.none() | st.builds(Dead, st.sampled_from(["exhausted", "poison"]), failures)),
            publish_tries=draw(st.integers(0, 1000)),
            ended=draw(st.sampled_from(["", "done", "dead"])),
            due=draw(st.none() | st.floats(1, 1e12)),
        )
        for offset in sorted(offsets)
    )
    order = draw(st.sampled_from([None, "key", "partition"]))
    return Batch(handler, topic, partition, deliveries, draw(names), draw(names), draw(names), order)


plain = Delivery(Message("orders", 3, 1234, b"k", b"v", (("a", b"1"),), 5), "orders.handlers.charge")


@given(batches())
def test_a_batch_survives_its_way_through_celery(batch):
    travelled = from_header(batch.handler, json.loads(json.dumps(to_header(batch))))
    assert travelled == batch
    for delivery in travelled.deliveries:
        assert delivery.message.attempt == delivery.attempts + 1
        assert delivery.message.delivery == delivery.identity


def test_the_identity_is_the_origin_and_the_handler():
    assert plain.identity == "orders-3-1234:orders.handlers.charge"
    assert str(plain) == plain.identity
    assert plain.message.coordinates == "orders-3-1234"


@pytest.mark.parametrize("other", [{"cluster": "other"}, {"group": "other"}, {"topic_id": "made again"}])
def test_the_same_identity_from_elsewhere_has_another_origin(other):
    batch = Batch("charge", "orders", 3, (Delivery(Message("orders", 3, 1234), "charge"),), "kafka", "bridge", "id")
    here, there = (from_header("charge", to_header(each)) for each in (batch, replace(batch, **other)))
    assert here.deliveries[0].identity == there.deliveries[0].identity
    assert here.deliveries[0].message.origin != there.deliveries[0].message.origin


def test_the_task_id_is_the_identity_and_from_the_first_park_on_a_number():
    assert plain.task_id == plain.identity
    assert replace(plain, number=2).task_id == f"{plain.identity}#2"
    assert replace(plain, number=2).identity == plain.identity


def test_flower_and_the_logs_show_what_a_batch_carries():
    assert label("orders", 3, [1234]) == "(orders-3-1234)"
    assert label("orders", 3, [1200, 1201, 1399]) == "(orders-3-1200..1399, 3 messages)"
    assert batch_id("orders", 3, [1234], "charge") == "orders-3-1234:charge"
    assert batch_id("orders", 3, [1200, 1399], "charge") == "orders-3-1200..1399:charge"


def test_a_failure_counts_an_attempt_and_spends_a_retry_only_if_it_should():
    failure = Failure("ValueError", "", "", 77)
    once = plain.failed(failure, spent=True)
    assert (once.attempts, once.failures, once.first_failed_at) == (1, 1, 77)
    twice = once.failed(Failure("ValueError", "", "", 99), spent=False)
    assert (twice.attempts, twice.failures, twice.first_failed_at) == (2, 1, 77)


def test_the_last_header_of_a_name_counts():
    message = Message("orders", 0, 0, headers=(("a", b"1"), ("b", None), ("a", b"2")))
    assert (message.header("a"), message.header("b"), message.header("c")) == (b"2", None, None)


good = to_header(Batch("some.handler", "orders", 3, (plain,), "cluster", "bridge", "id"))
RECORD = good["messages"][0]


def with_record(**fields: object) -> dict[str, Any]:
    """The good header with another record: `at0` to `at5` replace one of its fields."""
    record = [*RECORD, {}]
    for name, value in fields.items():
        record[int(name.removeprefix("at"))] = value
    return {**good, "messages": [record]}


@pytest.mark.parametrize(
    "header",
    [
        None,
        5,
        "text",
        [],
        {},
        *({key: value for key, value in good.items() if key != name} for name in good),
        {**good, "partition": "three"},
        {**good, "messages": None},
        {**good, "messages": []},
        {**good, "messages": [[1]]},
        {**good, "messages": 7},
        with_record(at0=None),
        with_record(at0=float("inf")),
        with_record(at1="today"),
        with_record(at2=5),
        with_record(at3="not base64!"),
        with_record(at3="größe"),
        with_record(at4=[["a"]]),
        with_record(at4=[["a", "b", "c"]]),
        with_record(at4=5),
        with_record(at5={"attempts": None}),
        with_record(at5={"first_failed_at": "yesterday"}),
        with_record(at5={"dead": "yes"}),
        with_record(at5={"dead": {"reason": "poison"}}),
        with_record(at5="more"),
    ],
    ids=repr,
)
def test_a_header_that_the_bridge_did_not_write_is_refused_by_name(header):
    with pytest.raises(MalformedDelivery, match=r"A message for some.handler has a `kafka` header"):
        from_header("some.handler", header)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from([*good, "dead", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(anything, st.sampled_from([*good, "order"]), st.integers(0, 5))
def test_whatever_a_header_holds_there_is_a_batch_or_one_kind_of_error(value, name, at):
    for header in (value, {**good, name: value}, with_record(**{f"at{at}": value})):
        try:
            batch = from_header("some.handler", header)
        except MalformedDelivery:
            continue
        assert from_header("some.handler", to_header(batch)) == batch
