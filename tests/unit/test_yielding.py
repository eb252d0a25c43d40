"""A worker that knows nothing of what it takes leaves the queue to others for a moment."""

from lossless.transport.yielding import ANY, IN_A_ROW, LONGEST, PART, SHORTEST, Yielding


def strange(yielding: Yielding, count: int, now: float) -> float:
    return max(yielding.note("q", True, now) for _ in range(count))


def test_what_is_mixed_with_known_messages_slows_nothing():
    yielding = Yielding()
    for _ in range(10):
        assert strange(yielding, IN_A_ROW - 1, 0) == 0
        assert yielding.most("q", 0) == ANY
        yielding.note("q", False, 0)


def test_a_queue_of_strange_messages_is_left_then_looked_at_in_part_and_is_its_own_case():
    yielding = Yielding()
    assert strange(yielding, IN_A_ROW, 0) == SHORTEST
    assert (yielding.most("q", 0), yielding.most("other", 0)) == (0, ANY)
    assert not yielding.over(["q"], SHORTEST / 2)
    assert yielding.over(["q"], SHORTEST)
    assert not yielding.over(["q"], SHORTEST)
    assert yielding.most("q", SHORTEST) == 1
    yielding.note("q", False, SHORTEST)
    assert yielding.most("q", SHORTEST) == ANY


def test_the_pause_grows_while_little_lies_there():
    yielding, now, pauses = Yielding(), 0.0, []
    for _ in range(IN_A_ROW + 5):
        pauses.append(strange(yielding, 1, now))
        now += 10
    assert pauses[IN_A_ROW - 1 :] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST, LONGEST, LONGEST, LONGEST]


def test_a_part_of_much_is_looked_at_between_two_short_pauses():
    yielding = Yielding()
    strange(yielding, IN_A_ROW, 0)
    assert yielding.over(["q"], 10)
    yielding.lie("q", 10 * PART)
    assert yielding.most("q", 10) == 10
    assert strange(yielding, 9, 10) == 0
    assert yielding.most("q", 10) == 1
    assert strange(yielding, 1, 10) == SHORTEST
