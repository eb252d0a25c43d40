"""What messages that wait say of why they do."""

from typing import Any

from bridge.dispatch.carrier_message import (
    WaitingFailures,
    find_carried_deliveries,
    read_carrier,
    sum_up_failures,
)
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Batch, Dead, Delivery, Message
from bridge.formats.failure import Failure
from tasks.errors import StopConsuming


def waiting(*deliveries: Delivery) -> tuple[dict[str, object], float]:
    batch = Batch("charge", "orders", 0, deliveries)
    return {"task": "charge", HEADER: to_header(batch)}, 20.0


def fresh(offset: int) -> Delivery:
    return Delivery(Message("orders", 0, offset), "charge")


def test_what_failed_and_what_kafka_refuses_are_told_apart_and_who_asks_to_stop_is_told_with_the_halt():
    stop, failure = Failure.from_error(StopConsuming("bank shut"), 5.0), Failure.from_error(OSError("no"), 7.0)
    failed = fresh(1).failed(failure, spent=True)
    held = fresh(2).failed(stop, spent=False)
    refused = Delivery(Message("orders", 0, 3), "charge", dead=Dead("exhausted", failure), publish_tries=1)
    assert sum_up_failures([waiting(failed, held), waiting(refused), waiting(fresh(4)), ({}, 1.0)], False) == [
        WaitingFailures("charge", "failed", 1, 7.0, "OSError: no"),
        WaitingFailures("charge", "unpublished", 1, None, "exhausted"),
    ]


def test_a_counter_that_is_none_of_ours_counts_as_nothing():
    headers: dict[str, Any] = {**waiting(fresh(1))[0], "lost": "x", "restored": [2]}
    ((_, told),) = find_carried_deliveries(headers, "orders", {(0, 1, "charge")})
    assert read_carrier(headers, told, "q", "queue", None).attempts.lost == 0
    failed = waiting(fresh(1).failed(Failure.from_error(OSError("no"), 7.0), spent=True))
    assert [each.count for each in sum_up_failures([({**failed[0], "lost": "x"}, 1.0)], False)] == [1]
