"""The rules of a circuit breaker: when it opens, sends a trial request and closes, without a Redis."""

import logging
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.breaker_state import BreakerStatus, BreakerTerms, RunResults
from tests.breaker_model import Model

T0 = 1_000_000.0


def good(count: int = 1) -> RunResults:
    return RunResults(good=count)


def bad(*names: str) -> RunResults:
    return RunResults(failed=names)


def opened(terms: BreakerTerms | None = None) -> Model:
    """One that has just opened, 2 s after T0."""
    model = Model(terms or BreakerTerms())
    model.report(T0, bad("0"))
    model.report(T0 + 2, bad(*map(str, range(1, 10))))
    assert model.state == "open"
    return model


def test_when_nothing_succeeds_any_more_it_opens_and_says_since_when():
    model = Model()
    model.report(T0 - 100, good(50))
    for number in range(9):
        model.report(T0 + number / 4, bad(str(number)))
        assert model.state == "closed"
    model.report(T0 + 3, bad("9"))
    assert (model.state, model.since, model.opened) == ("open", T0, T0 + 3)


def test_few_deliveries_over_a_long_time_open_it_too():
    model = Model()
    for number in range(10):
        model.report(T0 + 900 * number, bad(str(number)))
    assert model.state == "open"


def test_half_of_many_failing_opens_it_a_third_does_not():
    failing, limping = Model(), Model()
    for number in range(30):
        failing.report(T0 + number / 10, RunResults(good=1, failed=(str(number),)))
        limping.report(T0 + number / 10, RunResults(good=2, failed=(str(number),)))
    assert (failing.state, limping.state) == ("open", "closed")


@given(st.integers(1, 9), st.lists(st.booleans(), min_size=1, max_size=200))
def test_a_few_broken_messages_among_good_ones_never_open_it_however_often_they_are_retried(
    broken: int, order: Sequence[bool]
):
    model = Model()
    for at, is_good in enumerate(order):
        model.report(T0 + at, good() if is_good else bad(str(at % broken)))
        assert model.state == "closed"


def test_a_message_that_is_retried_alone_for_an_hour_never_opens_it():
    model = Model()
    for at in range(3600):
        model.report(T0 + at, bad("1"))
    assert model.state == "closed"


def test_what_failed_before_others_succeeded_is_no_witness_when_it_fails_again():
    model = Model()
    for number in range(50):
        model.report(T0 + number, RunResults(good=1, failed=(str(number),)) if number % 4 == 0 else good())
    for again in range(1000):
        # A quiet night: nothing comes but the retries of what is broken.
        model.report(T0 + 51 + again, RunResults(failed=(str(again % 50),), age=51.0 + again))
    assert model.state == "closed"


def test_nothing_but_dead_letters_opens_it():
    model = Model()
    for number in range(19):
        model.report(T0 + number, RunResults(dead=(str(number),)))
        assert model.state == "closed"
    model.report(T0 + 19, RunResults(dead=("19",)))
    assert model.state == "open"


def test_what_is_told_a_moment_late_by_others_opens_nothing():
    """Successes are told up to half a second late, failures at once."""
    model = Model()
    model.report(T0, bad(*map(str, range(500))))
    model.report(T0 + 0.5, good(10_000))
    model.report(T0 + 0.9, bad("500"))
    assert model.state == "closed"


def test_one_probe_at_a_time_tests_it():
    model = opened()
    assert not model.admit(T0 + 2.9, "early")
    assert model.allowed(T0 + 3) == 1
    assert model.admit(T0 + 3, "one")
    assert not model.admit(T0 + 3, "two")
    assert model.allowed(T0 + 4) == 0


def test_a_probe_that_fails_is_followed_by_another_after_a_growing_pause():
    model = opened()
    at, pauses = T0 + 3, []
    for number in range(6):
        assert model.admit(at, str(number))
        model.report(at, bad("x"), str(number))
        assert model.state == "open"
        pauses.append(model.probe - at)
        at = model.probe
    assert pauses == [2, 4, 8, 10, 10, 10]


def test_a_probe_whose_worker_dies_is_replaced():
    model = opened()
    assert model.admit(T0 + 3, "dies")
    assert not model.admit(T0 + 32, "next")
    assert model.admit(T0 + 33, "next")
    model.report(T0 + 34, bad("late"), "dies")
    assert model.state == "probing"


def joined(model: Model, until: int) -> list[int]:
    """The seconds, from T0 on, in which a probe begins, where none says how it ended."""
    return [second for second in range(3, until) if model.admit(T0 + second, str(second))]


def test_probes_that_hang_are_joined_every_five_minutes_for_an_hour_and_then_ever_more_rarely():
    found = joined(opened(), 20_000)
    assert found[:6] == [3, 33, 93, 213, 453, 753]
    waits = [after - before for before, after in pairwise(found)]
    assert waits == [30, 60, 120, 240, *[300] * 12, 600, 1200, 2400, 3600, 3600, 3600]
    assert found[16] > 3600


@pytest.mark.parametrize("outage", [100, 1000, 1900, 3900])
def test_where_all_that_tries_it_hangs_it_is_tried_again_within_five_minutes_of_the_end_of_an_hours_outage(outage: int):
    assert min(second for second in joined(opened(), 20_000) if second >= outage) - outage <= 300


@given(st.integers(1, 86_400), st.integers(1, 7))
def test_what_hangs_never_adds_up_to_more_than_one_an_hour_after_the_first_sixteen(within: int, days: int):
    model, now, begun = opened(BreakerTerms(probe_within=within)), T0 + 3, 0
    while now < T0 + 86_400 * days:
        assert model.admit(now, str(now))
        now, begun = model.lease, begun + 1
    assert begun <= 20 + 24 * days


def test_a_probe_that_says_how_it_ended_has_the_next_ones_not_wait_for_those_that_hang():
    model = opened()
    joined(model, 3600)
    assert model.admit(model.lease, "next")
    model.report(model.tried + 1, bad("x"), "next")
    assert model.admit(model.probe, "one")
    assert model.lease == model.probe + 30


def test_a_probe_that_ends_long_after_it_was_joined_hangs_no_longer():
    model = opened()
    assert joined(model, 100) == [3, 33, 93]
    model.report(T0 + 101, RunResults(failed=("x",), ran=98), "3")
    assert (model.state, model.silent) == ("probing", 1)
    model.advance(model.lease)
    model.report(model.lease + 1, RunResults(failed=("x",), ran=121), "93")
    assert (model.state, model.silent) == ("open", 1)
    # What began before it opened is none of these.
    model.report(model.lease + 2, RunResults(failed=("x",), ran=9999), "before")
    assert model.silent == 1


def test_probes_that_a_time_limit_ends_are_followed_each_after_the_same_time():
    model = opened(BreakerTerms(probe_within=61, probe_ends=True))
    assert joined(model, 300) == [3, 64, 125, 186, 247]
    assert model.silent == 0


def test_a_probe_that_takes_longer_than_it_may_and_succeeds_has_it_go_on_all_the_same():
    model = opened()
    assert model.admit(T0 + 3, "slow")
    assert model.admit(T0 + 33, "next")
    model.report(T0 + 50, RunResults(good=1, ran=47), "slow")
    assert model.state == "ramping"


def test_what_was_admitted_before_it_opened_again_says_nothing_of_what_is_now():
    model = opened()
    assert model.admit(T0 + 3, "one")
    model.report(T0 + 3, good(), "one")
    assert model.admit(T0 + 4, "early")
    model.report(T0 + 5, bad("a", "b", "c"), "n")
    assert model.state == "open"
    model.report(T0 + 6, RunResults(good=1, ran=2), "early")
    assert model.state == "open"


def test_what_is_to_die_is_kept_where_another_failed_too_and_nothing_has_succeeded_for_as_long():
    model = Model()
    model.report(T0, good())
    model.report(T0 + 10, bad("a"))
    model.report(T0 + 900, bad("b"))
    model.report(T0 + 1210, RunResults(failed=("a",), age=1200, last=True))
    assert (model.state, model.since) == ("open", T0 + 10)


@pytest.mark.parametrize(
    ("others", "age"),
    [
        # Alone it is broken itself, for all that is known; so is what fails at once, by its policy.
        ((), 1200.0),
        (("b", "c"), 3.0),
    ],
)
def test_what_is_to_die_dies_alone_and_where_it_has_not_failed_for_long(others: Sequence[str], age: float):
    model = Model()
    model.report(T0, bad("a"))
    model.report(T0 + 1, bad(*others))
    model.report(T0 + 1200, RunResults(failed=("a",), age=age, last=True))
    assert model.state == "closed"


def test_without_retries_so_many_die_before_it_opens_as_it_takes_failures_to_open_it():
    model, died = Model(), 0
    for number in range(100):
        model.report(T0 + number, RunResults(failed=(str(number),), last=True), str(number))
        died += model.state == "closed"
    assert died == 9


def test_one_at_a_time_the_first_dies_and_the_next_is_kept():
    model = Model()
    for number, begins in enumerate((T0, T0 + 1200)):
        for age in range(0, 1201, 100):
            model.report(begins + age, RunResults(failed=(str(number),), age=age, last=age == 1200))
        assert model.state == ("closed" if number == 0 else "open")


def test_what_is_to_die_dies_where_others_have_succeeded_meanwhile():
    model = Model()
    model.report(T0, bad("a", "b"))
    model.report(T0 + 600, good())
    model.report(T0 + 700, bad("b"))
    model.report(T0 + 1200, RunResults(failed=("a",), age=1200, last=True))
    assert model.state == "closed"


def test_a_probe_that_tells_nothing_is_replaced_at_once():
    model = opened()
    assert model.admit(T0 + 3, "one")
    model.report(T0 + 4, RunResults(unclear=True), "one")
    assert model.admit(T0 + 4, "two")


def test_what_ran_since_before_it_opened_changes_nothing():
    model = opened()
    model.report(T0 + 3, good(1000))
    model.report(T0 + 3, bad("late"))
    assert model.state == "open"


def test_after_a_success_more_and_more_may_run_until_all_may():
    model = opened()
    model.admit(T0 + 3, "one")
    model.report(T0 + 3.1, good(), "one")
    assert model.state == "ramping"
    ran = []
    for second in range(1, 10):
        count = 0
        while model.admit(T0 + 3.1 + second, "n"):
            count += 1
        ran.append(count)
    assert ran == sorted(ran)
    assert ran[0] <= 10
    assert ran[-1] > 1000
    assert model.admit(T0 + 13.2, "n")
    assert model.until == T0 + 13.2


def test_failing_again_as_it_is_tried_it_opens_again_and_one_broken_message_does_not_do_that():
    model = opened()
    model.admit(T0 + 3, "one")
    model.report(T0 + 3, good(), "one")
    for _ in range(10):
        model.report(T0 + 4, bad("broken"), "n")
    assert model.state == "ramping"
    model.report(T0 + 4, bad("a", "b"), "n")
    assert (model.state, model.since, model.probe) == ("open", T0, T0 + 14)


@given(st.data())
def test_however_it_goes_it_is_closed_again_once_all_succeeds(data: st.DataObject):
    model, now = Model(BreakerTerms(failures=3)), T0
    for number in range(data.draw(st.integers(0, 40))):
        now += data.draw(st.sampled_from([0.0, 0.3, 1.0, 7.0, 31.0]))
        if model.admit(now, str(number)):
            ended = data.draw(
                st.sampled_from([good(), bad(str(number)), RunResults(dead=(str(number),)), RunResults(unclear=True)])
            )
            model.report(now, ended, str(number))
    since, held = now, max(30.0, model.lease - now)
    while model.state != "closed":
        now += 0.5
        if model.admit(now, f"n{now}"):
            model.report(now, good(), f"n{now}")
    # A probe that somebody holds, the pause, the ramp.
    assert now - since <= held + 10 + 10 + 2


def test_the_log_says_of_a_silent_trial_request_that_it_hangs_or_its_worker_died_and_to_set_a_time_limit():
    known = BreakerStatus(before="probing", state="open", tried=T0, lease=T0 + 120, silent=3)
    level, text = known.words("bank") or (0, "")
    assert level == logging.WARNING
    assert text == (
        "circuit breaker of bank: its trial request of 1970-01-12 13:46:40 UTC has not ended in 120 s, nor have 2 "
        "before it: it hangs, or its worker died. Another trial request may start: set a time limit (`time_limit`) "
        "where a handler has none, and what hangs ends."
    )
    assert "failed" in (known._replace(silent=0).words("bank") or (0, ""))[1]


@pytest.mark.parametrize(
    ("known", "at", "covered"),
    [
        (BreakerStatus(), T0, False),
        (BreakerStatus(state="open", since=T0), T0 - 6, False),
        (BreakerStatus(state="open", since=T0), T0 - 1, True),
        (BreakerStatus(state="open", since=T0), T0 + 9999, True),
        (BreakerStatus(state="closed", since=T0, until=T0 + 60), T0 + 60, True),
        (BreakerStatus(state="closed", since=T0, until=T0 + 60), T0 + 61, False),
    ],
)
def test_failures_of_an_outage_are_told_from_those_before_and_after(known: BreakerStatus, at: float, covered: bool):
    assert known.covers(at) is covered
