"""The audit counts dead letters while they are read, in a memory that hardly grows with them."""

import tracemalloc
from typing import Any

from bridge.formats.dead_letter_record import DeadLetterKey, DeadLetterSummary
from bridge.inspection.letter_tally import MAX_ERROR, DeadDeliveries, LetterTally

MANY = 20_000


def letter(offset: int, *, handler: str = "charge", **values: Any) -> DeadLetterSummary:
    given = {"reason": "permanent", "error": f"E: no card {offset}", "failed_at": float(offset), **values}
    return DeadLetterSummary("orders.dlq-0-0", "orders", DeadLetterKey(0, offset, handler), "g", 1, None, **given)


def test_the_last_letter_of_a_delivery_counts_and_one_that_is_not_dead_does_not():
    dead = DeadDeliveries("charge", 0, [range(2, 4), range(7, 8)])
    tally = LetterTally([dead])
    for each in (letter(2), letter(3), letter(3, reason="exhausted", failed_at=9.0), letter(5), letter(2, handler="x")):
        tally.add(each)
    assert [(found.reason, found.count) for found in tally.summarize()] == [("exhausted", 1), ("permanent", 1)]
    assert dead.first_without_letter(10) == [7]


def test_the_summary_has_the_first_and_the_last_time_and_the_last_error_in_short():
    tally = LetterTally([DeadDeliveries("charge", 0, [range(3)])])
    for each in (letter(2, error="z" * 1000), letter(0), letter(1)):
        tally.add(each)
    (found,) = tally.summarize()
    assert (found.count, found.error) == (3, "z" * MAX_ERROR)
    assert found.since < found.last


def test_the_letter_of_an_earlier_handler_of_a_sequence_is_the_letter_of_those_after_it():
    dead = DeadDeliveries("book", 0, [range(2)], ("charge",))
    tally = LetterTally([dead])
    tally.add(letter(1))
    assert dead.first_without_letter(10) == [0]
    assert tally.summarize() == []


def test_no_letter_is_held_once_it_is_counted():
    tracemalloc.start()
    try:
        tally = LetterTally([DeadDeliveries("charge", 0, (range(each, each + 1) for each in range(MANY)))])
        for offset in range(MANY):
            tally.add(letter(offset, error=f"{offset} " + "x" * 1000))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < peak < 60 * MANY, "a letter that is held takes more than 300 bytes for its error alone"
    assert tally.summarize()[0].count == MANY
