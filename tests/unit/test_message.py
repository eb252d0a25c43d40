"""Messages and deliveries, and how they travel."""

from dataclasses import replace

from bridge.formats.delivery import Attempts, Batch, Delivery, Message
from bridge.formats.delivery_identity import batch_id, label_records
from bridge.formats.failure import Failure

plain = Delivery(Message("orders", 3, 1234, b"k", b"v", (("a", b"1"),), 5), "orders.handlers.charge")


def test_the_identity_is_the_origin_and_the_handler():
    assert plain.identity == "orders-3-1234:orders.handlers.charge"
    assert str(plain) == plain.identity
    assert plain.message.coordinates == "orders-3-1234"


def test_the_task_id_is_the_identity_and_from_the_first_park_on_a_number():
    assert plain.task_id == plain.identity
    assert replace(plain, number=2).task_id == f"{plain.identity}#2"
    assert replace(plain, number=2).identity == plain.identity


def test_a_batch_of_what_was_parked_has_another_name_than_the_one_before():
    second = replace(plain, message=replace(plain.message, offset=1235))
    batch = Batch("charge", "orders", 3, (plain, second))
    assert batch.task_id == "orders-3-1234..1235:charge"
    assert batch.holding(replace(each, number=2) for each in batch.deliveries).task_id == f"{batch.task_id}#2"


def test_flower_and_the_logs_show_what_a_batch_carries():
    assert label_records("orders", 3, [1234]) == "(orders-3-1234)"
    assert (
        label_records("orders", 3, [1200, 1201, 1399])
        == "(orders-3-1200..1399, 3 messages: orders-3-1200 orders-3-1201 orders-3-1399)"
    )
    assert batch_id("orders", 3, [1234], "charge") == "orders-3-1234:charge"
    assert batch_id("orders", 3, [1200, 1399], "charge") == "orders-3-1200..1399:charge"


def test_a_failure_counts_an_attempt_and_spends_a_retry_only_if_it_should():
    failure = Failure("ValueError", "", "", 77)
    once = plain.failed(failure, spent=True)
    assert (once.runs, once.attempts, once.first_failed_at) == (1, Attempts(failed=1), 77)
    twice = once.failed(Failure("ValueError", "", "", 99), spent=False)
    assert (twice.runs, twice.attempts, twice.first_failed_at) == (2, Attempts(failed=1, postponed=1), 77)


def test_lost_processes_are_counted_apart_and_are_runs():
    assert plain.lost(0) is plain
    lost = plain.lost(2)
    assert (lost.runs, lost.attempts) == (2, Attempts(lost=2))


def test_attempts_say_what_there_was():
    assert str(Attempts()) == "none"
    assert str(Attempts(3, 1).plus(lost=1, replayed=2)) == "3 failed, 2 lost, 2 replayed"


def test_the_last_header_of_a_name_counts():
    message = Message("orders", 0, 0, headers=(("a", b"1"), ("b", None), ("a", b"2")))
    assert (message.header("a"), message.header("b"), message.header("c")) == (b"2", None, None)
