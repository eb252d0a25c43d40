"""The header in which deliveries travel through Celery: both its forms, and whatever is in them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import MalformedDelivery
from bridge.formats.celery_header import (
    HEADER,
    HeaderContents,
    from_header,
    header_of,
    to_header,
    to_joining,
)
from bridge.formats.delivery import Attempts, Batch, Dead, Delivery, Message, Via
from bridge.formats.delivery_row import DeliveryMetadata, DeliveryRow
from bridge.formats.failure import Failure

names = st.text(st.characters(codec="utf-8"), max_size=20)
payloads = st.none() | st.binary(max_size=50)
milliseconds = st.integers(1, 2**53)
failures = st.builds(Failure, st.text(), st.text(), st.text(), milliseconds)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    topic, partition = draw(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)), draw(st.integers(0, 2**31 - 1))
    handler = draw(st.from_regex(r"[a-z_.]{1,30}", fullmatch=True))
    offsets = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4, unique=True))
    via = draw(st.none() | st.builds(Via, names, st.integers(0, 2**31 - 1), st.just(-1), names))
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
            runs=draw(st.integers(0, 1000)),
            attempts=draw(st.builds(Attempts, *[st.integers(0, 1000)] * 4)),
            first_failed_at=draw(st.none() | milliseconds),
            dead=draw(
                st.none()
                | st.builds(Dead, st.sampled_from(["exhausted", "poison"]), failures, st.sampled_from(["", "1.4"]))
            ),
            publish_tries=draw(st.integers(0, 1000)),
            ended=draw(st.sampled_from(["", "done", "dead"])),
            due=draw(st.none() | st.floats(1, 1e12)),
            via=None if via is None else via._replace(offset=draw(st.integers(0, 2**63 - 1))),
            after=draw(st.none() | st.integers(0, 2**63 - 1)),
            again=draw(st.sampled_from(["", "plan-7"])),
            once=draw(st.booleans()),
        )
        for offset in sorted(offsets)
    )
    order = draw(st.sampled_from([None, "key", "partition"]))
    return Batch(handler, topic, partition, deliveries, draw(names), draw(names), draw(names), order)


plain = Delivery(Message("orders", 3, 1234, b"k", b"v", (("a", b"1"),), 5), "orders.handlers.charge")


@given(batches(), st.data())
def test_what_joined_is_in_the_order_of_its_offsets_and_once_as_it_was_last(batch, data):
    header, joins = to_joining(batch, to_header(batch), 200)
    rows = joins["items"]
    again = to_header(batch.holding([replace(each, runs=each.runs + 1) for each in batch.deliveries[:2]]))
    header[rows] = data.draw(st.permutations(header[rows] + again[rows]))
    found = from_header(batch.handler, json.loads(json.dumps(header))).deliveries
    assert [each.message.offset for each in found] == [each.message.offset for each in batch.deliveries]
    assert [each.runs for each in found[:2]] == [each.runs + 1 for each in batch.deliveries[:2]]
    assert found[2:] == batch.deliveries[2:]


@given(batches())
def test_a_batch_survives_its_way_through_celery(batch):
    travelled = from_header(batch.handler, json.loads(json.dumps(to_header(batch))))
    assert travelled == batch
    for delivery in travelled.deliveries:
        assert delivery.message.attempt == delivery.runs + 1
        assert delivery.message.attempts == delivery.attempts
        assert delivery.message.delivery == delivery.work


@given(batches())
def test_deliveries_with_a_past_are_handed_off_in_columns_and_survive(batch):
    rows = [DeliveryRow.from_delivery(delivery) for delivery in batch.deliveries]
    header = header_of(
        batch.topic, batch.partition, batch.cluster, batch.group, batch.topic_id, batch.order, rows, batch.via
    )
    assert from_header(batch.handler, json.loads(json.dumps(header))) == batch


came = Delivery(Message("orders", 3, 1234), "charge", via=Via("orders.retry.5m", 3, 17, "r"))


def test_what_came_by_a_retry_topic_is_left_alone_by_workers_that_know_no_such_thing():
    """They look for `messages` and `columns`, and leave what has neither to others."""
    for deliveries in ((came,), (came, replace(came, message=Message("orders", 3, 1235)))):
        batch = Batch("charge", "orders", 3, deliveries)
        assert not {"messages", "columns"} & to_header(batch).keys()
        rows = [DeliveryRow.from_delivery(each) for each in deliveries]
        assert not {"messages", "columns"} & header_of("orders", 3, "", "", "", None, rows, came.via).keys()


def test_only_what_came_by_one_partition_of_a_retry_topic_is_joined():
    def name(via: Via | None) -> str:
        batch = Batch("charge", "orders", 3, (replace(came, via=via),))
        return str(to_joining(batch, to_header(batch), 200)[1]["name"])

    via = Via("orders.retry.5m", 3, 17, "r")
    assert name(via) == name(via._replace(offset=18))
    others = [None, via._replace(topic="orders.retry.1h"), via._replace(partition=4), via._replace(topic_id="other")]
    assert len({name(via), *map(name, others)}) == 5


@pytest.mark.parametrize("other", [{"cluster": "other"}, {"group": "other"}, {"topic_id": "made again"}])
def test_the_same_identity_from_elsewhere_has_another_origin(other):
    batch = Batch("charge", "orders", 3, (Delivery(Message("orders", 3, 1234), "charge"),), "kafka", "bridge", "id")
    here, there = (from_header("charge", to_header(each)) for each in (batch, replace(batch, **other)))
    assert here.deliveries[0].identity == there.deliveries[0].identity
    assert here.deliveries[0].message.origin != there.deliveries[0].message.origin


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
        {**good, "via": ["retry", 0, "r"]},
        {**good, "via": 5},
        {**good, "via": ["retry"], "again": good["messages"]},
        {**good, "via": ["retry", 0, "r"], "again": good["messages"]},
        {**good, "via": ["retry", 0, "r"], "again": [[*RECORD, {"via": "x"}]]},
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


# Columns: what a bridge hands off together


@st.composite
def records(draw: st.DrawFn) -> list[DeliveryRow]:
    offsets = draw(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 9), min_size=1, max_size=8, unique=True))
    return [
        DeliveryRow(
            offset,
            draw(st.none() | st.integers(0, 2**53)),
            draw(payloads),
            draw(payloads),
            draw(st.none() | st.lists(st.tuples(names, payloads), max_size=3)),
            draw(st.none() | st.builds(Dead, st.just("undecodable"), failures)),
        )
        for offset in sorted(offsets)
    ]


@given(records(), st.sampled_from([None, "key", "partition"]))
def test_records_survive_their_way_through_celery(rows, order):
    header = json.loads(json.dumps(header_of("orders", 3, "cluster", "bridge", "id", order, rows)))
    batch = from_header("charge", header)
    assert (batch.topic, batch.partition, batch.cluster, batch.group) == ("orders", 3, "cluster", "bridge")
    assert (batch.topic_id, batch.order) == ("id", order)
    assert [
        DeliveryRow(m.offset, m.timestamp, m.key, m.value, list(m.headers) or None, delivery.dead)
        for delivery in batch.deliveries
        for m in [delivery.message]
    ] == [row._replace(headers=row.headers or None) for row in rows]
    assert all(each.message.delivery == each.identity and each.message.attempt == 1 for each in batch.deliveries)
    assert from_header("charge", to_header(batch)) == batch


def fresh(count: int) -> list[DeliveryRow]:
    return [DeliveryRow(1200 + at, 1_700_000_000_000, b"%d" % at, b"x" * 200, None) for at in range(count)]


def test_one_record_travels_as_it_always_did_and_many_in_columns():
    one, many = (header_of("orders", 3, "c", "g", "id", None, fresh(count)) for count in (1, 200))
    assert one["messages"] == [[1200, 1_700_000_000_000, "MA==", one["messages"][0][3], None]]
    assert "messages" not in many
    assert many["columns"]["offsets"] == [[1200, 200]]


def test_a_batch_is_little_longer_than_its_payload_in_base64():
    written = json.dumps(header_of("orders", 3, "c", "g", "id", None, fresh(200)))
    assert len(written) < 1.15 * 200 * 203 * 4 / 3


def test_nothing_is_written_of_what_no_record_has():
    rows = [DeliveryRow(1, None, None, b"a", None), DeliveryRow(2, None, None, b"b", [])]
    columns = header_of("orders", 3, "c", "g", "id", None, rows)["columns"]
    assert columns == {
        "offsets": [[1, 2]],
        "timestamps": (None, None),
        "keys": None,
        "values": {"sizes": [1, 1], "bytes": "YWI="},
    }


ROWS = [
    DeliveryRow(7, 5, b"k", b"v", [("a", b"1")]),
    DeliveryRow(8, None, None, b"", None),
    DeliveryRow(11, 6, b"kk", None, []),
]
MANY = json.loads(json.dumps(header_of("orders", 3, "cluster", "bridge", "id", None, ROWS)))

JUNK: list[Any] = [None, 5, "text", [], {}]


def with_columns(**columns: object) -> dict[str, Any]:
    return {**MANY, "columns": {**MANY["columns"], **columns}}


@pytest.mark.parametrize(
    "header",
    [
        *({**MANY, "columns": junk} for junk in JUNK),
        *(with_columns(**{name: junk}) for name in ("offsets", "timestamps") for junk in (*JUNK, [[1]])),
        with_columns(offsets=[[7, 2]]),
        with_columns(offsets=[[7, 10**18]]),
        with_columns(offsets=[[7, 4], [11, -1]]),
        with_columns(offsets=[], timestamps=[]),
        with_columns(offsets=[[7, 2], [float("inf"), 1]]),
        with_columns(keys={}),
        with_columns(keys={"sizes": [1, 2], "bytes": "a2tr"}),
        with_columns(keys={"sizes": [1, 2, 1], "bytes": "a2tr"}),
        with_columns(keys={"sizes": [4, -1, None], "bytes": "a2tr"}),
        with_columns(keys={"sizes": [2.5, 0.5, None], "bytes": "a2tr"}),
        with_columns(values={"sizes": [1, 0, None], "bytes": "not base64!"}),
        with_columns(values={"sizes": [1, 0, None], "bytes": 5}),
        with_columns(values={"sizes": "abc", "bytes": "dg=="}),
        with_columns(headers={"3": [["a", "MQ=="]]}),
        with_columns(headers={"-1": [["a", "MQ=="]]}),
        with_columns(headers={"x": []}),
        with_columns(headers=[["a", "MQ=="]]),
        with_columns(more={"0": {"dead": "yes"}}),
        with_columns(more={"0": 5}),
        with_columns(more=5),
    ],
    ids=repr,
)
def test_broken_columns_are_refused_by_name(header):
    with pytest.raises(MalformedDelivery, match=r"A message for some.handler has a `kafka` header"):
        from_header("some.handler", header)
    HeaderContents.from_headers({HEADER: header})


@given(anything, st.sampled_from([*MANY["columns"], "headers", "more"]), st.sampled_from(["sizes", "bytes"]))
def test_whatever_columns_hold_there_is_a_batch_or_one_kind_of_error(value, name, part):
    column = MANY["columns"].get(name)
    for header in (
        with_columns(**{name: value}),
        with_columns(**{name: {**column, part: value} if isinstance(column, dict) else value}),
    ):
        HeaderContents.from_headers({HEADER: header})
        try:
            batch = from_header("some.handler", header)
        except MalformedDelivery:
            continue
        assert from_header("some.handler", to_header(batch)) == batch


# What a header says without its records being read


@given(batches())
def test_what_a_header_carries_is_told_without_reading_its_records(batch):
    contents = HeaderContents.from_headers({HEADER: json.loads(json.dumps(to_header(batch)))})
    assert contents is not None
    assert (contents.topic, contents.partition, list(contents.offsets)) == (batch.topic, batch.partition, batch.offsets)
    assert list(contents.metadata()) == [
        DeliveryMetadata(
            each.runs,
            each.attempts,
            each.number,
            each.error,
            each.first_failed_at,
            each.dead.reason if each.dead else "",
            each.via,
        )
        for each in batch.deliveries
    ]


@given(records())
def test_what_columns_carry_is_told_too(rows):
    contents = HeaderContents.from_headers(
        {HEADER: json.loads(json.dumps(header_of("orders", 3, "c", "g", "id", None, rows)))}
    )
    assert contents is not None
    assert list(contents.offsets) == [row.offset for row in rows]
    assert [told.dead for told in contents.metadata()] == [row.dead.reason if row.dead else "" for row in rows]


@given(anything)
def test_another_header_of_that_name_carries_nothing_of_ours(value):
    for header in (value, {**good, "messages": value}, {**good, "partition": value}):
        contents = HeaderContents.from_headers({HEADER: header})
        if contents is not None:
            assert len(list(contents.metadata())) == len(contents.offsets)


def test_a_changed_delivery_is_as_replace_makes_it_and_the_first_one_stays() -> None:
    first = Delivery(Message("orders", 3, 5, value=b"1"), "charge", runs=2, error="E: x", due=4.5, after=4)
    before = replace(first)
    assert first.changed(due=None, runs=3) == replace(first, due=None, runs=3)
    assert first == before
