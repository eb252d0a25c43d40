"""Messages and deliveries, and how they travel."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import MalformedDelivery
from bridge.failure import Failure
from bridge.message import Dead, Delivery, Message, from_header, to_header

names = st.text(st.characters(codec="utf-8"), max_size=20)
payloads = st.none() | st.binary(max_size=50)
milliseconds = st.integers(1, 2**53)
messages = st.builds(
    Message,
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(names, payloads), max_size=4).map(tuple),
    timestamp=st.none() | st.integers(0, 2**53),
)
failures = st.builds(Failure, st.text(), st.text(), st.text(), milliseconds)
deliveries = st.builds(
    Delivery,
    message=messages,
    handler=st.from_regex(r"[a-z_.]{1,30}", fullmatch=True),
    number=st.integers(0, 1000),
    attempts=st.integers(0, 1000),
    failures=st.integers(0, 1000),
    first_failed_at=st.none() | milliseconds,
    dead=st.none() | st.builds(Dead, st.sampled_from(["exhausted", "poison"]), failures),
    publish_tries=st.integers(0, 1000),
)
plain = Delivery(Message("orders", 3, 1234, b"k", b"v", (("a", b"1"),), 5), "orders.handlers.charge")


@given(deliveries)
def test_a_delivery_survives_its_way_through_celery(delivery):
    travelled = from_header(delivery.handler, json.loads(json.dumps(to_header(delivery))))
    assert travelled == delivery
    assert travelled.message.attempt == delivery.attempts + 1


def test_the_identity_is_the_origin_and_the_handler():
    assert plain.identity == "orders-3-1234:orders.handlers.charge"
    assert str(plain) == plain.identity
    assert plain.message.coordinates == "orders-3-1234"


def test_the_task_id_is_the_identity_and_from_the_first_park_on_a_number():
    assert plain.task_id == plain.identity
    assert replace(plain, number=2).task_id == f"{plain.identity}#2"
    assert replace(plain, number=2).identity == plain.identity


def test_a_failure_counts_an_attempt_and_spends_a_retry_only_if_it_should():
    failure = Failure("ValueError", "", "", 77)
    once = plain.failed(failure, spent=True)
    assert (once.attempts, once.failures, once.first_failed_at) == (1, 1, 77)
    twice = once.failed(Failure("ValueError", "", "", 99), spent=False)
    assert (twice.attempts, twice.failures, twice.first_failed_at) == (2, 1, 77)


def test_the_last_header_of_a_name_counts():
    message = Message("orders", 0, 0, headers=(("a", b"1"), ("b", None), ("a", b"2")))
    assert (message.header("a"), message.header("b"), message.header("c")) == (b"2", None, None)


good = to_header(plain)


@pytest.mark.parametrize(
    "header",
    [
        None,
        5,
        "text",
        [],
        {},
        {name: value for name, value in good.items() if name != "offset"},
        {**good, "partition": "three"},
        {**good, "offset": None},
        {**good, "offset": float("inf")},
        {**good, "value": "not base64!"},
        {**good, "value": "größe"},
        {**good, "key": 5},
        {**good, "headers": None},
        {**good, "headers": [["a"]]},
        {**good, "headers": [["a", "b", "c"]]},
        {**good, "timestamp": "today"},
        {**good, "attempts": None},
        {**good, "first_failed_at": "yesterday"},
        {**good, "dead": "yes"},
        {**good, "dead": {"reason": "poison"}},
    ],
    ids=repr,
)
def test_a_header_that_the_bridge_did_not_write_is_refused_by_name(header):
    with pytest.raises(MalformedDelivery, match=r"A message for some\.handler has a `kafka` header"):
        from_header("some.handler", header)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*good, "x"]), inner, max_size=4),
    max_leaves=8,
)


@given(anything, st.sampled_from([*good, "headers", "dead", "number", "first_failed_at", "publish_tries"]))
def test_whatever_a_header_holds_there_is_a_delivery_or_one_kind_of_error(value, name):
    for header in (value, {**good, name: value}):
        try:
            delivery = from_header("some.handler", header)
        except MalformedDelivery:
            continue
        assert from_header("some.handler", to_header(delivery)) == delivery
