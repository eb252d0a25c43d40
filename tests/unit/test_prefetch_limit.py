"""How many more messages may be taken, and when a slot is free again."""

from types import SimpleNamespace
from typing import Any

import pytest

from lossless.transport.prefetch_limit import QoS


def qos(limit: int, delivered: int, holder: Any = None) -> Any:
    made: Any = QoS(SimpleNamespace(holder=holder, settle_soon=lambda: None, do_restore=False), limit)
    for number in range(delivered):
        made.append(object(), f"tag.{number}")
    return made


@pytest.mark.parametrize(
    ("prefetch", "delivered", "limit", "arrived", "credit"),
    [
        (0, 50, 100, 0, 100),  # without a limit of the consumer's, the trip's
        (0, 50, 100, 30, 70),
        (8, 0, 100, 0, 8),
        (8, 5, 100, 0, 3),
        (8, 5, 100, 2, 1),
        (8, 5, 100, 9, 0),  # what has arrived counts too
        (8, 8, 100, 0, 0),
        (8, 0, 1, 0, 1),
    ],
)
def test_no_more_is_taken_than_the_consumer_has_room_for(
    prefetch: int, delivered: int, limit: int, arrived: int, credit: int
) -> None:
    assert qos(prefetch, delivered).credit(limit, arrived) == credit


@pytest.mark.parametrize(("room", "arrived", "credit"), [(True, 0, 1), (True, 1, 0), (False, 0, 0)])
def test_where_celery_decides_itself_one_is_taken_at_a_time(room: bool, arrived: int, credit: int) -> None:
    """`worker_disable_prefetch` replaces `can_consume` (celery/worker/consumer/tasks.py)."""
    made = qos(0, 0)
    made.can_consume = lambda: room
    assert made.credit(100, arrived) == credit


def test_a_slot_is_free_though_its_holder_failed() -> None:
    class Failing:
        def ack(self, tag: str) -> None:
            raise RuntimeError

    made = qos(2, 2, Failing())
    with pytest.raises(RuntimeError):
        made.ack("tag.0")
    assert made.credit(100, 0) == 1
    assert not made.delivers("tag.0")
    assert made.delivers("tag.1")


def test_what_was_never_delivered_takes_no_slot() -> None:
    """An entry that is no message is settled without having been counted."""
    made = qos(2, 1)
    made.ack("tag.of an entry")
    assert made.credit(100, 0) == 1
    assert made.at_work
    made.ack("tag.0")
    assert not made.at_work
