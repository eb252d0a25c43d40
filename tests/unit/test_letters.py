"""Whose a dead letter is: topics that are made again have the same offsets again."""

from typing import Any

import pytest

from bridge.records.failure import Failure
from bridge.records.message import Dead, Delivery, Message
from bridge.topics.letters import Letter, _letter
from bridge.topics.publisher import dead_letter_headers


def delivery(log: str, timestamp: int | None = 5) -> Delivery:
    return Delivery(Message("orders", 0, 7, timestamp=timestamp, origin=f"c g {log}"), "work")


def letter_of(written: Delivery, *, older: bool = False) -> Letter:
    """The dead letter as it is read back; `older`: as a version wrote it that did not name the log."""
    headers: dict[str, Any] = dict(dead_letter_headers(written, Dead("permanent", Failure("E", "m", "", 1)), "g"))
    if older:
        del headers["origin_topic_id"]
    found = _letter({name: value.decode() for name, value in headers.items()}, "g", "orders")
    assert found is not None
    return found


@pytest.mark.parametrize("older", [False, True], ids=["which names its log", "of an older version"])
@pytest.mark.parametrize("timestamp", [5, None])
def test_a_delivery_knows_its_own_dead_letter(older: bool, timestamp: int | None):
    assert letter_of(delivery("now", timestamp), older=older) in Letter.those_of(delivery("now", timestamp))


def test_a_dead_letter_of_an_earlier_log_is_not_a_deliverys_own():
    assert letter_of(delivery("earlier")) not in Letter.those_of(delivery("now"))
    assert letter_of(delivery("earlier", 4), older=True) not in Letter.those_of(delivery("now"))


def test_an_audit_takes_a_dead_letter_that_names_no_log_for_one_of_the_log_there_is():
    assert letter_of(delivery("now")).is_of("now")
    assert letter_of(delivery("earlier"), older=True).is_of("now")
    assert not letter_of(delivery("earlier")).is_of("now")
