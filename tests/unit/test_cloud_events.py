"""`codec=CloudEvents()`: a handler gets the event of either mode, and a repeated event has the same name."""

import json
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel

from bridge.formats.delivery import Message
from tasks import CloudEvents
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.errors import HandlerError, Undecodable

ATTRIBUTES = {"id": "e-7", "source": "/shop", "type": "placed", "specversion": "1.0"}
BINARY = tuple((f"ce_{name}", value.encode()) for name, value in ATTRIBUTES.items())
STRUCTURED = json.dumps(ATTRIBUTES | {"data": {"order": 7}}).encode()


def message(value: bytes | None, headers: Any = ()) -> Message:
    return Message("orders", 0, 1, None, value, headers)


@pytest.fixture
def declared():
    with Celery("events", set_as_current=False) as app:
        app.conf.update(OWN_DEFAULTS)

        def charge(event):
            return event

        def declare(**options: Any) -> Any:
            return declare_handler(app, ("orders",), {"name": "charge", "codec": CloudEvents(), **options})(charge)

        yield declare


@pytest.mark.parametrize(
    "sent",
    [
        message(b'{"order": 7}', (*BINARY, ("content-type", b"application/json"), ("other", b"\xff"), ("none", None))),
        message(b'{"order": 7}', BINARY),
        message(STRUCTURED, (("content-type", b"application/cloudevents+json"),)),
        message(STRUCTURED),
    ],
)
def test_the_handler_gets_the_event_of_either_mode(declared, sent):
    event = declared().call(sent)
    assert (event.get_id(), event.get_source(), event.get_type()) == ("e-7", "/shop", "placed")
    assert (event.get_data(), event.get_time()) == ({"order": 7}, None)


def test_an_event_may_have_no_data_and_a_tombstone_is_none(declared):
    assert declared().call(message(None, BINARY)).get_data() is None
    assert declared().decode(None) is None


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (message(b"{}"), "id, source, specversion, type is missing"),
        (message(b"{", ()), "no CloudEvent"),
        (message(b"{}", BINARY[:1]), "source, specversion, type is missing"),
        (message(b"{}", (*BINARY, ("ce_time", b"noon"))), "no CloudEvent"),
        (message(b"{", BINARY), "data is to be JSON"),
        (message(b"[]", (("content-type", b"application/cloudevents-batch+json"),)), "batch of events"),
    ],
)
def test_what_is_no_event_is_undecodable_and_says_why(declared, sent, words):
    with pytest.raises(Undecodable, match=words):
        declared().call(sent)


@pytest.mark.parametrize("sent", [message(b"{}", BINARY), message(STRUCTURED)])
@pytest.mark.parametrize(
    ("by", "name"), [("field:id", b"e-7"), ("field:source", b"/shop"), (CloudEvents().identify, b'["/shop", "e-7"]')]
)
def test_an_events_id_names_its_message_in_both_modes(declared, sent, by, name):
    assert declared(unique_by=by).find_unique_name(sent) == name


def test_a_header_names_a_binary_event(declared):
    assert declared(unique_by="header:ce_id").find_unique_name(message(b"{}", BINARY)) == b"e-7"


def test_a_field_of_the_data_names_a_message(declared):
    assert declared(unique_by="field:data.order").find_unique_name(message(STRUCTURED)) == b"7"


def test_sources_and_ids_with_spaces_name_two_events(declared):
    def name(source, id_):
        event = {**ATTRIBUTES, "source": source, "id": id_}
        return declared(unique_by=CloudEvents().identify).find_unique_name(message(json.dumps(event).encode()))

    assert name("a b", "c") != name("a", "b c")


def test_what_is_no_event_has_no_name(declared):
    assert declared(unique_by=CloudEvents().identify).find_unique_name(message(b"x")) is None


def test_a_model_in_place_of_the_event_is_refused_at_import():
    class Order(BaseModel):
        id: int

    def charge(order: Order) -> None: ...

    with Celery("events", set_as_current=False) as app:
        app.conf.update(OWN_DEFAULTS)
        with pytest.raises(HandlerError, match="gives an event, which no model validates"):
            declare_handler(app, ("orders",), {"name": "charge", "codec": CloudEvents()})(charge)
