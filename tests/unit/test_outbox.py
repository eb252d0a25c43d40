"""What a handler sends: how it is encoded, and the id by which a repeat is known."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bridge.formats.delivery import Message
from bridge.formats.outbox import OutgoingMessage, encode_value


class Invoice(BaseModel):
    total: int


def message(offset: int = 7, topic_id: str = "topic-1") -> Message:
    return Message("orders", 3, offset, delivery=f"orders-3-{offset}:charge", origin=f"cluster group {topic_id}")


def sent(given: Message) -> list[OutgoingMessage]:
    assert given.outbox is not None
    return given.outbox.messages


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (None, None),
        (b"\x00\xff", b"\x00\xff"),
        ("später", "später".encode()),
        ({"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        (Invoice(total=3), b'{"total":3}'),
        ([], b"[]"),
        (0, b"0"),
        (False, b"false"),
    ],
)
def test_a_value_travels_as_what_it_is(value: Any, bytes_: bytes | None) -> None:
    assert encode_value(value) == bytes_


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), {"a": float("inf")}, Message("t", 0, 0)])
def test_what_has_no_form_is_refused_where_it_is_given(value: Any) -> None:
    with pytest.raises(TypeError, match=r"message\.publish takes bytes, text, a pydantic model or"):
        message().publish("invoices", value)


@pytest.mark.parametrize("topic", ["", None, 3])
def test_a_topic_has_a_name(topic: Any) -> None:
    with pytest.raises(ValueError, match="name of a topic"):
        message().publish(topic, b"")


@pytest.mark.parametrize("more", [{"key": 3}, {"headers": {"kind": 3}}])
def test_keys_and_headers_are_text_or_bytes(more: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="text, bytes or None"):
        message().publish("invoices", b"", **more)


def test_the_same_message_of_another_run_has_the_same_id_and_no_other_has_it() -> None:
    first, again, other, made_again = message(), message(), message(8), message(topic_id="topic-2")
    for each in (first, again, other, made_again):
        each.publish("invoices", b"1")
        each.publish("invoices", b"2")
    assert [each.id for each in sent(first)] == [each.id for each in sent(again)]
    ids = {each.id for some in (first, other, made_again) for each in sent(some)}
    assert len(ids) == 6
    assert sent(first)[1].id == "orders-3-7:charge:1@topic-1"


def test_headers_may_be_pairs_so_that_names_repeat() -> None:
    given = message()
    given.publish("invoices", b"", headers=[("a", "1"), ("a", b"2"), ("b", None)])
    assert sent(given)[0].headers == (("a", b"1"), ("a", b"2"), ("b", None))


def test_a_value_shows_in_no_repr() -> None:
    given = message()
    given.publish("invoices", b"secret", key="secret", headers={"a": "secret"})
    assert "secret" not in repr(sent(given)[0])
    assert "secret" not in repr(given)


_BYTES = st.none() | st.binary(max_size=20)


@given(key=_BYTES, value=_BYTES, headers=st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3))
def test_it_comes_back_from_the_users_database_as_it_was(key: Any, value: Any, headers: Any) -> None:
    made = OutgoingMessage("invoices", "id", key, value, tuple(headers))
    assert OutgoingMessage.from_data(json.loads(json.dumps(made.to_data()))) == made
