"""What messages that wait say of why they do."""

from bridge.handoff.carriers import Waiting, waiting_of
from bridge.records.failure import Failure
from bridge.records.header import HEADER, to_header
from bridge.records.message import Batch, Dead, Delivery, Message
from tasks.errors import StopConsuming


def waiting(*deliveries: Delivery) -> tuple[dict[str, object], float]:
    batch = Batch("charge", "orders", 0, deliveries)
    return {"task": "charge", HEADER: to_header(batch)}, 20.0


def fresh(offset: int) -> Delivery:
    return Delivery(Message("orders", 0, offset), "charge")


def test_what_failed_what_is_held_and_what_kafka_refuses_are_told_apart():
    stop, failure = Failure.of(StopConsuming("bank shut"), 5.0), Failure.of(OSError("no"), 7.0)
    failed = fresh(1).failed(failure, spent=True)
    held = fresh(2).failed(stop, spent=False)
    refused = Delivery(Message("orders", 0, 3), "charge", dead=Dead("exhausted", failure), publish_tries=1)
    assert waiting_of([waiting(failed, held), waiting(refused), waiting(fresh(4)), ({}, 1.0)], False) == [
        Waiting("charge", "failed", 1, 7.0, "OSError: no"),
        Waiting("charge", "held", 1, 5.0, "tasks.errors.StopConsuming: bank shut"),
        Waiting("charge", "unpublished", 1, None, "exhausted"),
    ]
