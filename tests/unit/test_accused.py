"""Who is held to have killed a worker, and when such a one may run."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.accused import APART, Apart, Suspicion, deaths_with, suspicion_of

# workers that died after it had begun, and before; lost processes; what that says with a limit of 6
SUSPICIONS = [
    (0, 0, 0, Suspicion.NONE),
    (0, 1, 0, Suspicion.NONE),  # it was merely there
    (0, 2, 0, Suspicion.ACCUSED),  # what ends its worker at once is not always seen to begin
    (1, 0, 0, Suspicion.ACCUSED),
    (1, 0, 9, Suspicion.ACCUSED),  # lost processes have their own limit; one worker's death says little
    (1, 1, 0, Suspicion.ACCUSED),
    (2, 0, 3, Suspicion.ACCUSED),
    (2, 0, 4, Suspicion.POISON),
    (5, 1, 0, Suspicion.ACCUSED),
    (5, 2, 0, Suspicion.POISON),
    (6, 0, 0, Suspicion.POISON),
]


@pytest.mark.parametrize(("restored", "prefetched", "lost", "suspicion"), SUSPICIONS)
def test_what_the_deaths_of_workers_say_of_a_message_that_they_held(
    restored: int, prefetched: int, lost: int, suspicion: Suspicion
) -> None:
    assert suspicion_of(deaths_with(restored, prefetched), lost, 6) is suspicion


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_message_that_may_have_no_limit_is_never_poison(deaths: int, lost: int) -> None:
    assert suspicion_of(deaths, lost, float("inf")) is not Suspicion.POISON


def message(**more: Any) -> Any:
    return SimpleNamespace(acknowledged=False, channel=SimpleNamespace(closed=False), **more)


def apart() -> tuple[Apart, SimpleNamespace]:
    clock = SimpleNamespace(now=100.0)
    return Apart(lambda: clock.now), clock


@pytest.mark.parametrize(("deaths", "seconds"), [(1, APART[0]), (2, APART[1]), (3, APART[2]), (9, APART[2])])
def test_a_second_one_waits_longer_the_more_workers_the_first_has_seen_die(deaths: int, seconds: float) -> None:
    let, clock = apart()
    assert let.admits(message(), deaths)
    clock.now += seconds - 0.01
    assert not let.admits(message(), 1)
    clock.now += 0.02
    assert let.admits(message(), 1)


def test_one_whose_run_has_ended_lets_the_next_in_at_once() -> None:
    let, _ = apart()
    first, second = message(), message()
    assert let.admits(first, 3)
    assert not let.admits(second, 1)
    first.acknowledged = True
    assert let.admits(second, 1)
    second.channel.closed = True
    assert let.admits(message(), 1)
