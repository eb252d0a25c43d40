"""What the demo knows of each delivery, whatever it sees first, twice or never."""

from collections import Counter
from itertools import permutations

import pytest

from bridge.demo.delivery_watch import DONE, PARKED, RETRYING, DeliveryBoard

CHARGE, NOTIFY = "shop.charge", "shop.notify"


@pytest.fixture
def board() -> DeliveryBoard:
    return DeliveryBoard([CHARGE, NOTIFY])


def test_a_record_without_news_waits(board):
    board.produced("ordinary", "orders", 3, 7)
    assert board.counts() == Counter(waiting=2)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_is_seen_before_kafka_has_said_where_the_record_lies_counts(board, order):
    news = [
        lambda: board.produced("odd", "orders", 3, 7),
        lambda: board.done(f"orders-3-7:{CHARGE}"),
        lambda: board.dead(f"orders-3-7:{NOTIFY}", "exhausted", 4, "E: x"),
    ]
    for number in order:
        news[number]()
    row = board.rows(["odd"])["odd"]
    assert (row.records, row.retries) == (1, 3)
    assert row.outcomes == {CHARGE: Counter(done=1), NOTIFY: Counter(exhausted=1)}
    assert +board.counts() == Counter(done=1, dead=1)


def test_late_and_repeated_news_of_an_ended_delivery_changes_nothing(board):
    board.produced("odd", "orders", 0, 0)
    for _ in range(2):
        board.dead(f"orders-0-0:{CHARGE}", "permanent", 1, "E: x")
        board.done(f"orders-0-0:{NOTIFY}")
        board.sent_again(f"orders-0-0:{CHARGE}", 2)
        board.failed(f"orders-0-0:{NOTIFY}", "E: x")
    assert +board.counts() == Counter(done=1, dead=1)
    assert board.rows(["odd"])["odd"].retries == 0


@pytest.mark.parametrize("first", ["message", "event"])
def test_a_retry_counts_once_whether_its_message_or_the_event_of_its_failure_comes_first(board, first):
    board.produced("odd", "orders", 0, 0)
    task_id = f"orders-0-0:{CHARGE}"
    for retries in (1, 2):
        if first == "event":
            board.failed(task_id, "E: x")
        board.sent_again(task_id, retries)
        if first == "message":
            board.failed(task_id, "E: x")
    board.done(task_id)
    assert board.rows(["odd"])["odd"].retries == 2


def test_a_missed_event_is_made_up_for_when_the_worker_has_counted_all(board):
    for offset in range(3):
        board.produced("ordinary", "orders", 0, offset)
    board.dead(f"orders-0-0:{CHARGE}", "permanent", 1, "E: x")
    board.done(f"orders-0-1:{CHARGE}")
    board.all_done(CHARGE, 1)
    assert board.counts()["waiting"] == 4
    board.all_done(CHARGE, 2)
    assert board.rows(["ordinary"])["ordinary"].outcomes[CHARGE] == Counter(permanent=1, done=2)
    assert board.counts()["waiting"] == 3


def test_tasks_that_carry_no_delivery_are_passed_over(board):
    board.done("6a1c2b3e-0000-4000-8000-123456789012")
    board.failed("tasks.bury", "E: x")
    board.done(f"somewhere:{'other.handler'}")
    assert board.counts().total() == 0


def test_what_waits_in_a_retry_topic_is_shown_as_parked_until_a_worker_has_it_again():
    board = DeliveryBoard(["h"])
    board.produced("ordinary", "orders", 0, 0)
    # The event of its failure comes before its record is seen, or behind it.
    board.failed("orders-0-0:h", "away")
    board.parked("orders-0-0:h", 1, 1, "away")
    board.failed("orders-0-0:h", "away")
    assert board.counts()[PARKED] == 1
    # An event of the run before it was parked says nothing of the next.
    board.came_back("orders-0-0:h")
    assert board.counts()[PARKED] == 1
    board.came_back("orders-0-0:h#1")
    assert (board.counts()[PARKED], board.counts()[RETRYING]) == (0, 1)
    board.parked("orders-0-0:h", 1, 1, "away")
    assert board.counts()[PARKED] == 0
    board.parked("orders-0-0:h", 2, 2, "away")
    board.done("orders-0-0:h#2")
    assert board.counts()[DONE] == 1
    board.parked("orders-0-0:h", 3, 3, "late")
    assert (board.counts()[DONE], board.counts()[PARKED]) == (1, 0)
