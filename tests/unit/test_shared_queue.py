"""Whose messages wait in a queue that several handlers share."""

from bridge.dispatch.batch_sizer import PLACE_KNOWN_FOR
from bridge.dispatch.queue_room import QueueContents


def test_what_is_taken_is_the_oldest() -> None:
    line = QueueContents(PLACE_KNOWN_FOR)
    line.update_length(0, 0)
    line.add("slow", 2, 2, 1)
    line.add("quick", 10, 10, 2)
    assert (line.count_at_most("slow"), line.count_at_most("quick"), line.length) == (2, 10, 12)
    line.update_length(11, 3)
    assert (line.count_at_most("slow"), line.count_at_most("quick"), line.length) == (1, 10, 11)
    line.update_length(4, 3)
    assert (line.count_at_most("slow"), line.count_at_most("quick"), line.length) == (0, 4, 4)


def test_what_was_there_before_this_bridge_is_anybodys_until_it_is_taken() -> None:
    line = QueueContents(PLACE_KNOWN_FOR)
    line.update_length(10, 0)
    line.add("slow", 2, 2, 1)
    assert (line.count_at_most("slow"), line.count_at_most("quick")) == (12, 10)
    line.update_length(2, 2)
    assert (line.count_at_most("slow"), line.count_at_most("quick")) == (2, 0)


def test_where_others_keep_the_queue_full_ours_count_as_taken_after_a_while() -> None:
    line = QueueContents(PLACE_KNOWN_FOR)
    line.update_length(0, 0)
    line.add("slow", 2, 2, 0)
    line.update_length(400, PLACE_KNOWN_FOR)
    assert line.count_at_most("slow") == 2
    line.update_length(400, PLACE_KNOWN_FOR + 1)
    assert line.count_at_most("slow") == 0


def test_where_only_ours_are_there_they_count_however_long_they_wait() -> None:
    line = QueueContents(PLACE_KNOWN_FOR)
    line.update_length(0, 0)
    line.add("slow", 2, 2, 0)
    line.update_length(2, 10 * PLACE_KNOWN_FOR)
    assert line.count_at_most("slow") == 2
