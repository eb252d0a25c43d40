"""What was decided: who, when and why travel with it; of two decisions the one that Kafka has later counts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.records.control import (
    HISTORY,
    Change,
    Decision,
    Standing,
    change,
    decided,
    halt_key,
    halted_topic,
    in_force,
    newest,
    policy_handler,
    policy_key,
    read,
)

WHY = Change("1", {"halted": True}, "ann@desk", 1_000.5, "the bank is closed")


def test_a_key_says_what_it_is_about():
    assert (halted_topic(halt_key("orders")), policy_handler(halt_key("orders"))) == ("orders", None)
    assert (halted_topic(policy_key("orders.charge")), policy_handler(policy_key("orders.charge"))) == (
        None,
        "orders.charge",
    )


def test_a_decision_tells_who_when_and_why_and_what_stood_before():
    first = decided("halt:orders", None, WHY)
    second = decided("halt:orders", first, Change("2", None, "bob@desk", 1_010.0, "open again"))
    assert (first.by, first.at, first.why, first.data) == ("ann@desk", 1_000.5, "the bank is closed", {"halted": True})
    assert (second.data, second.history) == (None, (WHY,))
    assert second.follows(first)
    assert not first.follows(second)


def test_no_more_than_the_latest_decisions_travel():
    last = None
    for number in range(HISTORY + 5):
        last = decided("k", last, Change(str(number), {}, "", number, ""))
    assert last is not None
    assert [each.id for each in last.history] == [str(n) for n in range(HISTORY + 3, 3, -1)]


TEXT = st.text(max_size=8)
VALUES = st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | TEXT | st.booleans()
DATA = st.none() | st.dictionaries(TEXT, VALUES, max_size=3)
CHANGES = st.builds(Change, TEXT, DATA, TEXT, st.floats(0, 1e11), TEXT)


@given(CHANGES, st.lists(CHANGES, max_size=4))
def test_what_is_written_is_read_back(latest: Change, before: list[Change]):
    made = Decision("policy:é", latest, tuple(before))
    assert read("policy:é", made.to_value()) == made
    assert read("policy:é", made.to_value().encode()) == made


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", "[]", "3", "null", "{}", '{"id": "1", "data": 3, "by": "", "at": 1, "why": ""}', '{"id": "1"}'],
)
def test_what_is_no_decision_is_none(value):
    assert read("halt:orders", value) is None


def test_a_record_without_a_value_takes_away_what_stood():
    found = read("halt:orders", None)
    assert found is not None
    assert found.data is None


def test_of_two_decisions_the_later_in_the_topic_counts():
    one, other = Standing(decided("k", None, WHY), 3), Standing(decided("k", None, WHY), 7)
    for pair in itertools.permutations((one, other)):
        assert newest(*pair) == other
    assert newest(None, one) == newest(one, None) == one


def test_what_kafka_does_not_have_yet_stands_until_somebody_decides_who_knows_of_it():
    resumed = decided("k", None, change(None, "", 5, ""))
    halted = decided("k", resumed, change({}, "", 6, ""))
    again = decided("k", halted, change(None, "", 7, ""))
    assert in_force(Standing(resumed, 4), halted) == halted
    assert in_force(Standing(again, 9), halted) == again
    assert in_force(Standing(halted, 9), halted) == halted
    assert in_force(None, halted) == halted
    assert in_force(Standing(resumed, 4), None) == resumed
    assert in_force(None, None) is None


def test_of_two_that_knew_nothing_of_each_other_the_later_counts_wherever_it_lies():
    early, late = (decided("k", None, change({}, "", at, "")) for at in (5, 6))
    assert late.counts_over(early)
    assert not early.counts_over(late)
    assert newest(Standing(late, 3), Standing(early, 7)) == Standing(late)
    assert newest(Standing(early, 3), Standing(late, 7)) == Standing(late, 7)
    assert in_force(Standing(late, 3), early) == late
    assert in_force(Standing(early, 3), late) == late


def test_who_knew_of_the_other_counts_whatever_the_clocks_say():
    early = decided("k", None, change({}, "", 500, ""))
    since = decided("k", early, change(None, "", 5, ""))
    assert newest(Standing(since, 3), Standing(early, 7)) == Standing(since)
    assert newest(Standing(early, 3), Standing(since, 7)) == Standing(since, 7)


def test_what_a_persons_tool_takes_away_counts_where_it_lies():
    made, removed = decided("k", None, change({}, "", 5, "")), read("k", None)
    assert removed is not None
    assert newest(Standing(made, 3), Standing(removed, 7)) == Standing(removed, 7)
    assert newest(Standing(removed, 3), Standing(made, 7)) == Standing(made, 7)
