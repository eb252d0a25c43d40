"""What was sent back goes on to the next handler of its sequence, once, and what was not sent back does not."""

from dataclasses import replace

import pytest

from bridge.formats.delivery import Attempts, Delivery, Message
from bridge.formats.delivery_identity import Origin
from bridge.formats.outbox import OutgoingMessage
from bridge.formats.replay_record import replay_headers
from tasks.execution.outgoing_publication import UnsentMessages, _step_record

SEQUENCE = ("first", "second", "third")
MESSAGE = Message("orders", 3, 7, b"k", b"v", (("trace", b"1"),), 5, origin="cluster g log")
DELIVERY = Delivery(MESSAGE, "second", number=4, runs=9, attempts=Attempts(failed=2, replayed=3))


def test_it_goes_to_the_next_as_often_sent_back_and_with_all_its_retries():
    found = _step_record(DELIVERY, "g", SEQUENCE, "orders.replay")
    origin = Origin("orders", "log", 3, 7, "third", "g")
    headers = replay_headers(origin, MESSAGE.headers, timestamp=5, number=4, attempts=Attempts(replayed=2))
    assert found == OutgoingMessage("orders.replay", "", b"k", b"v", tuple(headers))  # type: ignore[arg-type]
    assert dict(found.headers)["attempts_replayed"] == b"3"


@pytest.mark.parametrize(("handler", "sequence"), [("third", SEQUENCE), ("other", SEQUENCE), ("second", ())])
def test_the_last_of_a_sequence_and_what_is_none_of_it_is_at_its_end(handler: str, sequence: tuple[str, ...]):
    assert _step_record(replace(DELIVERY, handler=handler), "g", sequence, "orders.replay") is None


def test_what_kafka_did_not_take_goes_on_once_when_it_comes_again():
    onward = _step_record(DELIVERY, "g", SEQUENCE, "orders.replay")
    unsent = UnsentMessages.from_delivery(DELIVERY, onward)
    assert unsent is not None
    again = replace(
        unsent.again, outgoing=tuple(OutgoingMessage.from_data(each.to_data()) for each in unsent.again.outgoing)
    )
    assert UnsentMessages.from_delivery(again, onward) == replace(unsent, delivery=again)


def test_who_comes_next_has_all_its_retries_though_the_one_before_had_one_attempt():
    once = _step_record(replace(DELIVERY, once=True), "g", SEQUENCE, "orders.replay")
    assert once == _step_record(DELIVERY, "g", SEQUENCE, "orders.replay")


def test_what_is_asked_to_run_again_goes_on_so():
    found = _step_record(replace(DELIVERY, again="plan-7"), "g", SEQUENCE, "orders.replay")
    assert found is not None
    assert dict(found.headers)["replay_again"] == b"plan-7"


def test_the_next_handler_goes_on_with_the_trace():
    hop = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    found = _step_record(replace(DELIVERY, trace=hop), "g", SEQUENCE, "orders.replay")
    assert found is not None
    assert dict(found.headers)["delivery_trace"] == hop.encode()
