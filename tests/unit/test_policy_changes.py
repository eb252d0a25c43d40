"""What may be changed of a policy at run time: read from a person's words, validated as at import, in force whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import DeadLetter, HandlerError
from tasks.policy.failure_decision import PERMANENT, DeadLetterDelivery, HaltTopic, RetryDelivery, decide_failure
from tasks.policy.policy_override import CHANGEABLE, CLASS_OPTIONS, PolicyOverrides
from tasks.policy.retry_policy import RetryPolicy, make_policy


class CardDeclined(ValueError):
    pass


class VisaDeclined(CardDeclined):
    pass


HERE = __name__
plain = PolicyOverrides("orders.charge", {})
fixed = PolicyOverrides("orders.charge", {"default_retry_delay": 9})
backing_off = PolicyOverrides("orders.charge", {"retry_backoff": 2})
listed = PolicyOverrides("orders.charge", {"retry_delays": (300, 300), "give_up_after": 60})
by_kwargs = PolicyOverrides("orders.charge", {"retry_kwargs": {"max_retries": 2, "countdown": 9}})


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["max_retries=20", "retry_backoff_max=3600"], {"max_retries": 20, "retry_backoff_max": 3600}),
        (["max_retries=none"], {"max_retries": None}),
        (["retry_delays=60, 300,0.5"], {"retry_delays": [60, 300, 0.5]}),
        (["retry_delays=(60, 300)"], {"retry_delays": [60, 300]}),
        (["retry_delays=[60,]"], {"retry_delays": [60]}),
        (["retry_delays=None"], {"retry_delays": None}),
        (["retry_backoff=true"], {"retry_backoff": True}),
        (["retry_backoff=no"], {"retry_backoff": False}),
        (["retry_backoff=2"], {"retry_backoff": 2}),
        (["retry_backoff_multiplier=1.5"], {"retry_backoff_multiplier": 1.5}),
        (["retry_backoff_multiplier=3"], {"retry_backoff_multiplier": 3}),
        (["retry_jitter=off"], {"retry_jitter": False}),
        (["default_retry_delay=1.5"], {"default_retry_delay": 1.5}),
        (["give_up_after=86400"], {"give_up_after": 86400}),
        (["give_up_after=null"], {"give_up_after": None}),
        (["dead_letter_for=ValueError"], {"dead_letter_for": ["ValueError"]}),
        ([f"stop_for={HERE}.CardDeclined,KeyError"], {"stop_for": [f"{HERE}.CardDeclined", "KeyError"]}),
        (["dead_letter_for=tasks.DeadLetter"], {"dead_letter_for": ["tasks.errors.DeadLetter"]}),
        (["dead_letter_for=none"], {"dead_letter_for": []}),
        (["autoretry_for="], {"autoretry_for": []}),
    ],
)
def test_a_persons_words_become_values_that_travel_as_json(words, changes):
    found = plain.read(words)
    assert found == changes
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("max_retrys=5", "no option 'max_retrys' that can be changed at run time: is 'max_retries' meant?"),
        ("shop=corner", "there are max_retries, retry_delays"),
        ("rate_limit=5", "rate_limit is not changed here: Celery changes it in the workers that run"),
        ("retry_when=x", "retry_when is not changed here: it is code"),
        ("retry_kwargs={}", "change max_retries and default_retry_delay"),
        ("max_retries", "max_retries to what? Say max_retries=VALUE."),
        ("max_retries=", "max_retries takes a whole number, or none; it was given ''."),
        ("max_retries=1.5", "a whole number, or none"),
        ("retry_backoff_max=an hour", "a number of seconds; it was given 'an hour'"),
        ("retry_backoff_multiplier=double", "retry_backoff_multiplier takes a number; it was given 'double'."),
        ("retry_backoff_multiplier=none", "retry_backoff_multiplier takes a number; it was given 'none'."),
        ("retry_jitter=maybe", "true or false"),
        ("retry_backoff=maybe", "a number of seconds, true or false"),
        ("retry_delays=60;300", "seconds with commas between (60,300,300), or none"),
        ("retry_delays=", "seconds with commas between"),
        ("dead_letter_for=VisaDeclined", f"(is {HERE}.VisaDeclined meant?)"),
        (f"dead_letter_for={HERE}.CardDeclind", f"(is {HERE}.CardDeclined meant?)"),
        ("dead_letter_for=json.dumps", "exception classes that are imported"),
    ],
)
def test_words_that_cannot_be_read_are_refused_with_what_is_meant(word, words):
    with pytest.raises(HandlerError) as refused:
        plain.read([word])
    assert str(refused.value).startswith("orders.charge: ")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changing", "changes", "policy"),
    [
        (plain, {}, RetryPolicy()),
        (plain, {"max_retries": 20, "retry_backoff_max": 3600}, RetryPolicy(max_retries=20, backoff_max=3600)),
        (plain, {"retry_backoff_multiplier": 1.5}, RetryPolicy(backoff_multiplier=1.5)),
        (fixed, {"retry_backoff": True, "retry_backoff_multiplier": 3}, RetryPolicy(backoff_multiplier=3)),
        (plain, {"retry_delays": [60, 300]}, RetryPolicy(delays=(60, 300), jitter=False)),
        (plain, {"default_retry_delay": 30}, RetryPolicy(fixed_delay=30)),
        (plain, {"retry_backoff": False}, RetryPolicy(fixed_delay=180)),
        (plain, {"give_up_after": 5, "retry_jitter": False}, RetryPolicy(give_up_after=5, jitter=False)),
        (plain, {"dead_letter_for": ["KeyError"]}, RetryPolicy(dead_letter_for=("KeyError",))),
        (fixed, {"retry_backoff": 3}, RetryPolicy(backoff=3)),
        (listed, {"retry_delays": None}, RetryPolicy(give_up_after=60)),
        (listed, {"retry_delays": None, "max_retries": 3}, RetryPolicy(give_up_after=60, max_retries=3)),
        (listed, {"give_up_after": None}, RetryPolicy(delays=(300, 300), jitter=False)),
        (by_kwargs, {"max_retries": 5}, RetryPolicy(max_retries=5, fixed_delay=9)),
        (by_kwargs, {"default_retry_delay": 5}, RetryPolicy(max_retries=2, fixed_delay=5)),
        (by_kwargs, {"retry_backoff": 2}, RetryPolicy(max_retries=2, backoff=2)),
    ],
)
def test_changes_make_the_policy_that_the_same_options_would_have_made(changing, changes, policy):
    assert changing.policy(changes) == policy


@pytest.mark.parametrize(
    ("changing", "changes", "words"),
    [
        (plain, {"max_retries": -1}, "max_retries takes numbers from 0 on; it was given -1."),
        (plain, {"retry_backoff_max": 10**9}, "31,536,000 (a year) at most"),
        (plain, {"retry_backoff_max": 0.5}, "takes whole numbers"),
        (plain, {"retry_backoff_multiplier": 0.9}, "takes finite numbers from 1 on; it was given 0.9."),
        (plain, {"retry_backoff_multiplier": float("nan")}, "takes finite numbers from 1 on; it was given nan."),
        (plain, {"retry_backoff_multiplier": float("inf")}, "takes finite numbers from 1 on; it was given inf."),
        (plain, {"give_up_after": float("inf")}, "give_up_after takes numbers from 0 on"),
        (plain, {"retry_delays": [1, -1]}, "retry_delays takes numbers from 0 on"),
        (plain, {"retry_delays": [1, "x"]}, "retry_delays takes numbers from 0 on"),
        (plain, {"max_retries": "x"}, "max_retries takes numbers"),
        (plain, {"dead_letter_for": "KeyError"}, "dead_letter_for takes names of exception classes"),
        (plain, {"gone_in_this_version": 1}, "a policy has no option"),
        (listed, {"max_retries": 3}, "max_retries has no effect beside retry_delays"),
        (listed, {"retry_backoff_max": 3}, "set retry_delays=none as well"),
        (fixed, {"retry_backoff_max": 3}, "no effect beside the fixed delay of 9 s: set retry_backoff=true as well"),
        (listed, {"retry_backoff_multiplier": 3}, "set retry_delays=none as well"),
        (fixed, {"retry_backoff_multiplier": 3}, "set retry_backoff=true as well"),
        (fixed, {"retry_jitter": True}, "no effect beside the fixed delay"),
        (backing_off, {"default_retry_delay": 3}, "no effect beside retry_backoff: set retry_backoff=false as well"),
    ],
)
def test_a_change_that_is_out_of_range_or_without_effect_is_refused(changing, changes, words):
    with pytest.raises(HandlerError) as refused:
        changing.policy(changes)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (CardDeclined(), DeadLetterDelivery(PERMANENT)),
        (VisaDeclined(), DeadLetterDelivery(PERMANENT)),
        (ValueError(), RetryDelivery(1)),
        (ConnectionRefusedError(), HaltTopic()),
        (SystemExit(), RetryDelivery(1)),
        (DeadLetter("no"), DeadLetterDelivery(PERMANENT)),
    ],
)
def test_a_class_that_is_named_counts_with_all_that_are_derived_from_it(error, decision):
    changes = {"dead_letter_for": [f"{HERE}.CardDeclined"], "stop_for": ["OSError"], "retry_jitter": False}
    assert decide_failure(plain.policy(changes), error, 0) == decision


@pytest.mark.parametrize(
    ("changing", "shown"),
    [
        (
            plain,
            {
                "max_retries": 12,
                "retry_delays": None,
                "retry_backoff": 1,
                "retry_backoff_multiplier": 2.0,
                "retry_backoff_max": 600,
                "default_retry_delay": None,
                "retry_jitter": True,
                "give_up_after": None,
                "autoretry_for": ["Exception"],
                "dont_autoretry_for": [],
                "dead_letter_for": [],
                "stop_for": [],
                "retry_when": None,
            },
        ),
        (listed, {"max_retries": 2, "retry_delays": [300, 300], "retry_backoff": None, "give_up_after": 60}),
        (listed, {"retry_backoff_multiplier": None}),
        (fixed, {"default_retry_delay": 9, "retry_backoff": None, "retry_jitter": False}),
        (fixed, {"retry_backoff_multiplier": None}),
        (PolicyOverrides("h", {"dead_letter_for": CardDeclined}), {"dead_letter_for": [f"{HERE}.CardDeclined"]}),
        (PolicyOverrides("h", {"retry_when": lambda *given: None}), {"retry_when": f"{HERE}.<lambda>"}),
    ],
)
def test_a_policy_is_shown_by_its_options(changing, shown):
    found = changing.shown(changing.policy({}))
    assert found == found | shown
    assert json.loads(json.dumps(found)) == found


values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)
options = st.sampled_from([*CHANGEABLE, "no_option"])


@given(st.sampled_from([plain, fixed, listed, by_kwargs, backing_off]), st.dictionaries(options, values, max_size=4))
def test_whatever_stands_there_makes_a_policy_or_is_refused(changing: PolicyOverrides, changes: dict[str, Any]):
    try:
        policy = changing.policy(changes)
    except HandlerError:
        return
    json.dumps(changing.shown(policy), allow_nan=False)
    assert decide_failure(policy, ConnectionError(), 0) is not None


@given(st.sampled_from([*CHANGEABLE]), st.text(max_size=20))
def test_whatever_a_person_writes_is_read_or_refused(option: str, text: str):
    try:
        found = plain.read([f"{option}={text}"])
    except HandlerError as error:
        found, words = {option: None}, str(error)
        assert f"{option} takes " in words
    assert found.keys() == {option}


@given(st.integers(0, 50), st.integers(1, 10**6), st.none() | st.floats(0, 10**6))
def test_what_is_set_back_is_the_codes_again(retries, most, budget):
    changes = {"max_retries": retries, "retry_backoff_max": most, "give_up_after": budget}
    assert plain.policy(changes) == RetryPolicy(max_retries=retries, backoff_max=most, give_up_after=budget)
    assert plain.policy({}) == make_policy("orders.charge", {})


def test_every_list_of_classes_can_be_changed():
    assert set(CLASS_OPTIONS) < set(CHANGEABLE)
