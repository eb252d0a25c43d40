"""What was changed of a policy, as it travels: by option, with who, when and why; and its history."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.group_decision import (
    HISTORY,
    GroupDecision,
    PolicyChange,
    append_decision,
    find_changed_policies,
    format_options,
    halt_key,
    list_policy_changes,
    make_decision_entry,
    policy_key,
    read_changed_options,
    read_decision,
    read_option_values,
    set_policy_options,
    summarize_policy_changes,
    unset_policy_options,
)

options = st.sampled_from(["max_retries", "retry_delays", "give_up_after"])


def test_an_option_keeps_who_set_it_until_it_is_set_anew():
    first = set_policy_options(None, {"max_retries": 20, "give_up_after": None}, "ann", 1.0, "the bank is slow")
    second = set_policy_options(first, {"max_retries": 30}, "bob", 2.0, "slower still")
    assert read_option_values(second) == {"max_retries": 30, "give_up_after": None}
    assert {option: (one.by, one.at, one.why) for option, one in read_changed_options(second).items()} == {
        "max_retries": ("bob", 2.0, "slower still"),
        "give_up_after": ("ann", 1.0, "the bank is slow"),
    }
    assert summarize_policy_changes(second) == "changed by bob at 1970-01-01T00:00:02+00:00"
    assert summarize_policy_changes(second, until=1.5) == "changed by ann at 1970-01-01T00:00:01+00:00"
    assert summarize_policy_changes(second, until=0.0) is None
    assert unset_policy_options(second, ["max_retries"]) == {"give_up_after": first["give_up_after"]}
    assert unset_policy_options(second, ["max_retries", "give_up_after", "other"]) is None
    assert summarize_policy_changes(None) is None


@given(st.lists(st.tuples(st.booleans(), st.dictionaries(options, st.integers(0, 3), min_size=1)), max_size=40))
def test_the_history_tells_each_change_and_survives_the_journey(made):
    decision: GroupDecision | None = None
    told = []
    for at, (is_set, changes) in enumerate(made):
        before = None if decision is None else decision.data
        after = (
            set_policy_options(before, changes, "ann", at, "why") if is_set else unset_policy_options(before, changes)
        )
        decision = append_decision("policy:h", decision, make_decision_entry(after, "ann", at, "why"))
        unset = () if is_set else tuple(option for option in read_option_values(before) if option in changes)
        told.append(PolicyChange(changes if is_set else {}, unset, "ann", at, "why"))
    if decision is not None:
        assert read_decision("policy:h", decision.to_value()) == decision
    assert list(list_policy_changes(decision)) == told[::-1][: HISTORY if len(made) > HISTORY else None]


@pytest.mark.parametrize("data", [{"max_retries": 5}, {"max_retries": {"value": 5}}, {"max_retries": None}, {}])
def test_what_is_no_change_changes_nothing(data):
    assert read_changed_options(data) == {}
    assert summarize_policy_changes(data) is None


@pytest.mark.parametrize("value", [{"is": 5}, {"is": 5, "at": "then"}, {"is": 5, "by": None, "why": 3}])
def test_a_change_of_which_little_is_told_is_one(value: Any):
    assert read_option_values({"max_retries": value}) == {"max_retries": 5}
    assert read_changed_options({"max_retries": value})["max_retries"].at == 0.0


def test_the_changed_policies_are_those_with_a_change_and_no_halt_is_one():
    changed = set_policy_options(None, {"max_retries": 20}, "ann", 1.0, "the bank is slow")
    made = {policy_key("charge"): changed, policy_key("notify"): None, halt_key("orders"): changed}
    standing = {
        key: append_decision(key, None, make_decision_entry(data, "ann", 1.0, "why")) for key, data in made.items()
    }
    assert find_changed_policies(standing) == {"charge": changed}


def test_changes_are_told_as_a_person_would_set_them():
    said = {
        "max_retries": None,
        "retry_jitter": True,
        "retry_delays": [60, 0.5],
        "dead_letter_for": ["KeyError"],
        "stop_for": [],
    }
    assert (
        format_options(said)
        == "max_retries=none retry_jitter=true retry_delays=60,0.5 dead_letter_for=KeyError stop_for=none"
    )
