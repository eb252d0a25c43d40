"""What was decided: who, when and why travel with it; of two decisions the one that Kafka has later counts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.group_decision import (
    HISTORY,
    DecisionEntry,
    GroupDecision,
    PublishedDecision,
    append_decision,
    choose_effective_decision,
    choose_newest_decision,
    halt_key,
    halted_topic,
    make_decision_entry,
    policy_handler,
    policy_key,
    read_decision,
)

WHY = DecisionEntry("1", {"halted": True}, "ann@desk", 1_000.5, "the bank is closed")


def test_a_key_says_what_it_is_about():
    assert (halted_topic(halt_key("orders")), policy_handler(halt_key("orders"))) == ("orders", None)
    assert (halted_topic(policy_key("orders.charge")), policy_handler(policy_key("orders.charge"))) == (
        None,
        "orders.charge",
    )


def test_a_decision_tells_who_when_and_why_and_what_stood_before():
    first = append_decision("halt:orders", None, WHY)
    second = append_decision("halt:orders", first, DecisionEntry("2", None, "bob@desk", 1_010.0, "open again"))
    assert (first.by, first.at, first.why, first.data) == ("ann@desk", 1_000.5, "the bank is closed", {"halted": True})
    assert (second.data, second.history) == (None, (WHY,))
    assert second.follows(first)
    assert not first.follows(second)


def test_no_more_than_the_latest_decisions_travel():
    last = None
    for number in range(HISTORY + 5):
        last = append_decision("k", last, DecisionEntry(str(number), {}, "", number, ""))
    assert last is not None
    assert [each.id for each in last.history] == [str(n) for n in range(HISTORY + 3, 3, -1)]


TEXT = st.text(max_size=8)
VALUES = st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | TEXT | st.booleans()
DATA = st.none() | st.dictionaries(TEXT, VALUES, max_size=3)
CHANGES = st.builds(DecisionEntry, TEXT, DATA, TEXT, st.floats(0, 1e11), TEXT)


@given(CHANGES, st.lists(CHANGES, max_size=4))
def test_what_is_written_is_read_back(latest: DecisionEntry, before: list[DecisionEntry]):
    made = GroupDecision("policy:é", latest, tuple(before))
    assert read_decision("policy:é", made.to_value()) == made
    assert read_decision("policy:é", made.to_value().encode()) == made


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", "[]", "3", "null", "{}", '{"id": "1", "data": 3, "by": "", "at": 1, "why": ""}', '{"id": "1"}'],
)
def test_what_is_no_decision_is_none(value):
    assert read_decision("halt:orders", value) is None


def test_a_record_without_a_value_takes_away_what_stood():
    found = read_decision("halt:orders", None)
    assert found is not None
    assert found.data is None


def test_of_two_decisions_the_later_in_the_topic_counts():
    one, other = (
        PublishedDecision(append_decision("k", None, WHY), 3),
        PublishedDecision(append_decision("k", None, WHY), 7),
    )
    for pair in itertools.permutations((one, other)):
        assert choose_newest_decision(*pair) == other
    assert choose_newest_decision(None, one) == choose_newest_decision(one, None) == one


def test_what_kafka_does_not_have_yet_stands_until_somebody_decides_who_knows_of_it():
    resumed = append_decision("k", None, make_decision_entry(None, "", 5, ""))
    halted = append_decision("k", resumed, make_decision_entry({}, "", 6, ""))
    again = append_decision("k", halted, make_decision_entry(None, "", 7, ""))
    assert choose_effective_decision(PublishedDecision(resumed, 4), halted) == halted
    assert choose_effective_decision(PublishedDecision(again, 9), halted) == again
    assert choose_effective_decision(PublishedDecision(halted, 9), halted) == halted
    assert choose_effective_decision(None, halted) == halted
    assert choose_effective_decision(PublishedDecision(resumed, 4), None) == resumed
    assert choose_effective_decision(None, None) is None


def test_of_two_that_knew_nothing_of_each_other_the_later_counts_wherever_it_lies():
    early, late = (append_decision("k", None, make_decision_entry({}, "", at, "")) for at in (5, 6))
    assert late.counts_over(early)
    assert not early.counts_over(late)
    assert choose_newest_decision(PublishedDecision(late, 3), PublishedDecision(early, 7)) == PublishedDecision(late)
    assert choose_newest_decision(PublishedDecision(early, 3), PublishedDecision(late, 7)) == PublishedDecision(late, 7)
    assert choose_effective_decision(PublishedDecision(late, 3), early) == late
    assert choose_effective_decision(PublishedDecision(early, 3), late) == late


def test_who_knew_of_the_other_counts_whatever_the_clocks_say():
    early = append_decision("k", None, make_decision_entry({}, "", 500, ""))
    since = append_decision("k", early, make_decision_entry(None, "", 5, ""))
    assert choose_newest_decision(PublishedDecision(since, 3), PublishedDecision(early, 7)) == PublishedDecision(since)
    assert choose_newest_decision(PublishedDecision(early, 3), PublishedDecision(since, 7)) == PublishedDecision(
        since, 7
    )


def test_what_a_persons_tool_takes_away_counts_where_it_lies():
    made, removed = append_decision("k", None, make_decision_entry({}, "", 5, "")), read_decision("k", None)
    assert removed is not None
    assert choose_newest_decision(PublishedDecision(made, 3), PublishedDecision(removed, 7)) == PublishedDecision(
        removed, 7
    )
    assert choose_newest_decision(PublishedDecision(removed, 3), PublishedDecision(made, 7)) == PublishedDecision(
        made, 7
    )
