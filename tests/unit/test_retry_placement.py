"""Tiers: which retry topic a wait goes to, and which of them a handler's source topics need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.retry_placement import (
    RetryTier,
    TierWaits,
    choose_tier,
    explicit_tiers,
    required_tiers,
    usable_tiers,
)
from bridge.settings.setting_defaults import FileSettings

STANDARD = FileSettings().kafka_retry_tiers


@pytest.mark.parametrize(
    ("wait", "tier"),
    [
        (0.5, RetryTier(60)),
        (60, RetryTier(60)),
        (60.1, RetryTier(120)),
        (3_600, RetryTier(3_600)),
        (86_400, RetryTier(86_400)),
        (86_400.5, RetryTier(86_400, again=True)),
        (1e9, RetryTier(86_400, again=True)),
    ],
)
def test_a_wait_goes_to_the_next_tier_that_is_long_enough(wait: float, tier: RetryTier):
    assert choose_tier(wait, STANDARD) == tier


def test_without_a_tier_there_is_nowhere_to_wait():
    assert choose_tier(60, []) is None


@given(st.floats(0, 1e8), st.lists(st.integers(1, 10**6), min_size=1))
def test_what_does_not_wait_again_has_waited_long_enough_and_no_tier_between_would_do(wait, delays):
    tier = choose_tier(wait, delays)
    assert tier is not None
    assert tier.delay in delays
    assert tier.again == (tier.delay < wait)
    assert not any(wait <= delay < tier.delay for delay in delays)


@pytest.mark.parametrize(
    ("delays", "longest", "wanted"),
    [
        # orders.retry.5m, .30m, .1h: three for the six retries
        ((300, 300, 1800, 1800, 1800, 3600), 3_600, (300, 1_800, 3_600)),
        # what is short goes through Celery
        ((5, 30, 59.9, 60), 60, (60,)),
        # exact to the second, never early
        ((90.5,), 90.5, (91,)),
        ((), 0, ()),
        # the default policy: at most 10 min
        (None, 600, (60, 120, 300, 600)),
        (None, 59, ()),
        (None, 60, (60,)),
        (None, 61, (60, 120)),
        (None, 10**9, STANDARD),
    ],
)
def test_a_source_topic_needs_what_its_handlers_wait(delays, longest: float, wanted: tuple[int, ...]):
    assert required_tiers(delays, longest, 60, STANDARD) == wanted


def test_tiers_shorter_than_what_is_parked_are_not_needed():
    assert required_tiers(None, 600, 300, STANDARD) == (300, 600)
    assert required_tiers(None, 10**6, 10**6, STANDARD) == (86_400,)


def test_where_every_tier_is_shorter_than_what_is_parked_a_delivery_is_parked_in_the_longest_alone():
    assert usable_tiers(None, 10**6, STANDARD) == (86_400,)
    assert usable_tiers((45,), 10**6, (60, 120)) == (120,)


def test_a_delivery_may_be_parked_into_its_handlers_own_tiers_and_into_everybodys():
    assert usable_tiers((45, 90, 7), 45, (60, 120)) == (45, 60, 90, 120)
    assert usable_tiers(None, 300, STANDARD) == (300, 600, 1_800, 3_600, 21_600, 86_400)


@given(st.lists(st.floats(0, 1e6), max_size=5), st.integers(1, 10**5))
def test_whatever_a_handlers_delays_are_each_that_is_parked_has_a_tier_of_its_own(delays, park_after):
    tiers = explicit_tiers(delays, park_after)
    for delay in delays:
        if delay >= park_after:
            tier = choose_tier(delay, tiers)
            assert tier is not None
            assert delay <= tier.delay < delay + 1
            assert not tier.again


@pytest.mark.parametrize(
    ("wait", "real"),
    [
        (59.9, 59.9),
        (60, 60),
        (61, 120),
        (3_601, 21_600),
        (86_401, 86_401),
        (86_470, 86_520),
        (200_000, 172_800 + 86_400),
    ],
)
def test_a_retry_starts_when_its_tiers_are_over(wait: float, real: float):
    assert TierWaits(60, STANDARD).real(wait) == pytest.approx(real)
    assert TierWaits(60).real(wait) == wait


@given(st.floats(0, 1e7), st.floats(0.1, 1e5), st.lists(st.integers(1, 10**5), max_size=5))
def test_no_retry_starts_before_its_time(wait, park_after, delays):
    assert TierWaits(park_after, tuple(sorted(delays))).real(wait) >= wait - 1e-6
