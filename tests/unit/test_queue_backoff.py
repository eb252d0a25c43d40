"""A worker that knows nothing of what it takes leaves the queue to others for a moment."""

from lossless.transport.queue_backoff import (
    ANY_NUMBER,
    IN_A_ROW,
    LOOKED_AT_PART,
    PAUSE,
    ROW_ENDS_AFTER,
    QueueBackoff,
)

SHORTEST, LONGEST = PAUSE.first, PAUSE.most


def see_unknown(backoff: QueueBackoff, count: int, now: float) -> float:
    return max(backoff.note("q", True, now) for _ in range(count))


def test_what_is_mixed_with_known_messages_slows_nothing():
    backoff = QueueBackoff()
    for _ in range(10):
        assert see_unknown(backoff, IN_A_ROW - 1, 0) == 0
        assert backoff.limit("q", 0) == ANY_NUMBER
        backoff.note("q", False, 0)


def test_a_queue_of_strange_messages_is_left_then_looked_at_in_part_and_is_its_own_case():
    backoff = QueueBackoff()
    assert see_unknown(backoff, IN_A_ROW, 0) == SHORTEST
    assert (backoff.limit("q", 0), backoff.limit("other", 0)) == (0, ANY_NUMBER)
    assert not backoff.over(["q"], SHORTEST / 2)
    assert backoff.over(["q"], SHORTEST)
    assert not backoff.over(["q"], SHORTEST)
    assert backoff.limit("q", SHORTEST) == 1
    backoff.note("q", False, SHORTEST)
    assert backoff.limit("q", SHORTEST) == ANY_NUMBER


def test_the_pause_grows_while_little_lies_there():
    backoff, now, pauses = QueueBackoff(), 0.0, []
    for _ in range(IN_A_ROW + 5):
        pauses.append(see_unknown(backoff, 1, now))
        now += LONGEST
    assert pauses[IN_A_ROW - 1 :] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST, LONGEST, LONGEST, LONGEST]


def test_a_part_of_much_is_looked_at_between_two_short_pauses():
    backoff = QueueBackoff()
    see_unknown(backoff, IN_A_ROW, 0)
    assert backoff.over(["q"], 1)
    backoff.note_length("q", 10 * LOOKED_AT_PART)
    assert backoff.limit("q", 1) == 10
    assert see_unknown(backoff, 9, 1) == 0
    assert backoff.limit("q", 1) == 1
    assert see_unknown(backoff, 1, 1) == SHORTEST
    # It is short now, and the pauses grow from there.
    assert backoff.limit("q", 3) == 1
    assert see_unknown(backoff, 1, 3) == 2 * SHORTEST


def test_strange_messages_that_come_seldom_are_no_row():
    backoff, now = QueueBackoff(), 0.0
    for _ in range(10 * IN_A_ROW):
        assert see_unknown(backoff, 1, now) == 0
        now += ROW_ENDS_AFTER + 0.1
    # The time for which a queue is left is no time in which nothing came.
    pause = see_unknown(backoff, IN_A_ROW, now)
    assert see_unknown(backoff, 1, now + pause + ROW_ENDS_AFTER) > 0
