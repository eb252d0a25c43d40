"""A worker that knows nothing of what it takes leaves the queue to others for a moment."""

from lossless.transport.queue_backoff import (
    ANY_NUMBER,
    IN_A_ROW,
    LONGEST,
    LOOKED_AT_PART,
    ROW_ENDS_AFTER,
    SHORTEST,
    QueueBackoff,
)


def strange(yielding: QueueBackoff, count: int, now: float) -> float:
    return max(yielding.note("q", True, now) for _ in range(count))


def test_what_is_mixed_with_known_messages_slows_nothing():
    yielding = QueueBackoff()
    for _ in range(10):
        assert strange(yielding, IN_A_ROW - 1, 0) == 0
        assert yielding.most("q", 0) == ANY_NUMBER
        yielding.note("q", False, 0)


def test_a_queue_of_strange_messages_is_left_then_looked_at_in_part_and_is_its_own_case():
    yielding = QueueBackoff()
    assert strange(yielding, IN_A_ROW, 0) == SHORTEST
    assert (yielding.most("q", 0), yielding.most("other", 0)) == (0, ANY_NUMBER)
    assert not yielding.over(["q"], SHORTEST / 2)
    assert yielding.over(["q"], SHORTEST)
    assert not yielding.over(["q"], SHORTEST)
    assert yielding.most("q", SHORTEST) == 1
    yielding.note("q", False, SHORTEST)
    assert yielding.most("q", SHORTEST) == ANY_NUMBER


def test_the_pause_grows_while_little_lies_there():
    yielding, now, pauses = QueueBackoff(), 0.0, []
    for _ in range(IN_A_ROW + 5):
        pauses.append(strange(yielding, 1, now))
        now += LONGEST
    assert pauses[IN_A_ROW - 1 :] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST, LONGEST, LONGEST, LONGEST]


def test_a_part_of_much_is_looked_at_between_two_short_pauses():
    yielding = QueueBackoff()
    strange(yielding, IN_A_ROW, 0)
    assert yielding.over(["q"], 1)
    yielding.lie("q", 10 * LOOKED_AT_PART)
    assert yielding.most("q", 1) == 10
    assert strange(yielding, 9, 1) == 0
    assert yielding.most("q", 1) == 1
    assert strange(yielding, 1, 1) == SHORTEST


def test_strange_messages_that_come_seldom_are_no_row():
    yielding, now = QueueBackoff(), 0.0
    for _ in range(10 * IN_A_ROW):
        assert strange(yielding, 1, now) == 0
        now += ROW_ENDS_AFTER + 0.1
    # The time for which a queue is left is no time in which nothing came.
    pause = strange(yielding, IN_A_ROW, now)
    assert strange(yielding, 1, now + pause + ROW_ENDS_AFTER) > 0
