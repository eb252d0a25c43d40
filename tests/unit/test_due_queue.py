"""The due queue of a retry partition: in which order its records go out, and which of them stay for a slow handler."""

from typing import Any

from bridge.formats.delivery import Delivery, Message
from bridge.formats.retry_record import RetryRecord
from bridge.partitions.due_queue import DueQueue, HeldRecord
from bridge.partitions.ordering import Portion
from bridge.partitions.slow_handlers import KEPT, KEPT_BYTES

CHARGE, NOTIFY = "shop.charge", "shop.notify"


def held(offset: int, handler: str = CHARGE, size: int = 10) -> HeldRecord:
    delivery = Delivery(Message("orders", 3, 100 + offset), handler)
    return HeldRecord(offset, RetryRecord(delivery, "bridge", "source-id", 0, 0), size)


def due(*records: HeldRecord) -> DueQueue:
    queue = DueQueue()
    for record in records:
        queue.add(record)
    return queue


def take(queue: DueQueue, **portions: Any) -> list[list[int]]:
    return [group.offsets for group, _ in queue.take({CHARGE: Portion(10, 10)} | portions)]


def test_the_records_of_a_batch_are_in_the_order_of_the_log_also_if_a_later_one_was_due_first() -> None:
    ((group, records),) = due(held(7), held(2), held(5)).take({CHARGE: Portion(10, 10)})
    assert group.offsets == [2, 5, 7]
    assert [record.offset for record in records] == [2, 5, 7]


def test_the_deliveries_of_a_handler_that_was_given_no_portion_go_out_one_by_one() -> None:
    queue = due(held(0, NOTIFY), held(1, NOTIFY), held(2), held(3))
    assert take(queue) == [[0], [1], [2, 3]]


def test_of_a_slow_handler_the_first_records_stay_and_nothing_of_another_handler_is_dropped() -> None:
    queue = due(*(held(n, (CHARGE, NOTIFY)[n % 2]) for n in range(20)))
    stay, dropped = queue.leave_few(CHARGE, 3)
    assert stay == 3
    assert [record.offset for record in dropped] == list(range(6, 20, 2))
    assert queue.counts == {CHARGE: 3, NOTIFY: 10}


def test_of_large_records_as_many_stay_as_have_the_bytes_and_one_stays_however_large_it_is() -> None:
    third = KEPT_BYTES // 3
    assert due(*(held(n, size=third) for n in range(10))).leave_few(CHARGE, KEPT)[0] == 3
    assert due(*(held(n, size=third) for n in range(10))).leave_few(CHARGE, 2 * KEPT)[0] == 6
    assert due(*(held(n, size=2 * KEPT_BYTES) for n in range(3))).leave_few(CHARGE, KEPT)[0] == 1
