"""Reasons of many, counted."""

from bridge.deadletters.editing.handler_check import EXAMPLES, MOST, OTHERS, ReasonCounts


def test_the_most_frequent_comes_first_with_a_few_examples():
    reasons = ReasonCounts()
    for letter in range(100):
        reasons.add("amount: missing" if letter % 4 else "no JSON", letter)
    assert [(each["why"], each["count"]) for each in reasons.to_data()] == [("amount: missing", 75), ("no JSON", 25)]
    assert reasons.to_data()[1]["letters"] == [0, 4, 8, 12, 16]
    assert len(reasons.to_data()[0]["letters"]) == EXAMPLES


def test_however_many_reasons_there_are_what_is_kept_has_an_end():
    reasons = ReasonCounts()
    for letter in range(10_000):
        reasons.add(f"reason {letter} " + "x" * 10_000, letter)
    found = reasons.to_data()
    assert len(found) == MOST + 1
    assert found[-1]["why"] == OTHERS
    assert sum(each["count"] for each in found) == reasons.count == 10_000
