"""Who is held to have killed a worker, and when such a one may run."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.poison_isolation import (
    APART,
    PoisonIsolation,
    Suspicion,
    count_deaths,
    has_killed_processes,
    judge_message,
)

# workers that died after it had begun, and before; lost processes; what that says with a limit of 6
SUSPICIONS = [
    (0, 0, 0, Suspicion.NONE),
    (0, 1, 0, Suspicion.NONE),  # it was merely there
    (0, 2, 0, Suspicion.SUSPECTED),  # what ends its worker at once is not always seen to begin
    (1, 0, 0, Suspicion.SUSPECTED),
    (1, 0, 9, Suspicion.SUSPECTED),  # lost processes have their own limit; one worker's death says little
    (1, 1, 0, Suspicion.SUSPECTED),
    (2, 0, 3, Suspicion.SUSPECTED),
    (2, 0, 4, Suspicion.POISON),
    (5, 1, 0, Suspicion.SUSPECTED),
    (5, 2, 0, Suspicion.POISON),
    (6, 0, 0, Suspicion.POISON),
]


@pytest.mark.parametrize(("restored", "prefetched", "lost", "suspicion"), SUSPICIONS)
def test_what_the_deaths_of_workers_say_of_a_message_that_they_held(
    restored: int, prefetched: int, lost: int, suspicion: Suspicion
) -> None:
    assert judge_message(count_deaths(restored, prefetched), lost, 6) is suspicion


def test_a_message_is_poison_with_the_last_process_that_its_limit_allows() -> None:
    assert [has_killed_processes(lost, 3) for lost in (1, 2, 3, 4)] == [False, False, True, True]


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_message_that_may_have_no_limit_is_never_poison(deaths: int, lost: int) -> None:
    assert judge_message(deaths, lost, float("inf")) is not Suspicion.POISON


def message(**more: Any) -> Any:
    return SimpleNamespace(acknowledged=False, channel=SimpleNamespace(closed=False), **more)


def apart() -> tuple[PoisonIsolation, SimpleNamespace]:
    clock = SimpleNamespace(now=100.0)
    return PoisonIsolation(lambda: clock.now), clock


def test_a_second_one_waits_half_a_second_where_each_has_seen_one_worker_die() -> None:
    let, clock = apart()
    assert let.admits(message(), 1)
    clock.now += APART - 0.01
    assert not let.admits(message(), 1)
    clock.now += 0.02
    assert let.admits(message(), 1)


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2), (2, 2), (5, 2)])
def test_what_has_seen_two_workers_die_runs_alone_however_long_it_takes(first: int, second: int) -> None:
    let, clock = apart()
    inside = message()
    assert let.admits(inside, first)
    clock.now += 1_000_000
    assert not let.admits(message(), second)
    inside.acknowledged = True
    assert let.admits(message(), second)


def test_it_waits_for_all_that_are_inside_and_not_for_the_last_alone() -> None:
    let, clock = apart()
    first, second = message(), message()
    assert let.admits(first, 1)
    clock.now += 1
    assert let.admits(second, 1)
    second.acknowledged = True
    assert not let.admits(message(), 2)
    first.acknowledged = True
    assert let.admits(message(), 2)


def test_one_whose_run_has_ended_lets_the_next_in_at_once() -> None:
    let, _ = apart()
    first, second = message(), message()
    assert let.admits(first, 3)
    assert not let.admits(second, 1)
    first.acknowledged = True
    assert let.admits(second, 1)
    second.channel.closed = True
    assert let.admits(message(), 1)


def deaths_of(takes: list[float], kills_after: float, limit: float, chance: random.Random) -> list[int]:
    """How many workers died with each of these at work; the last kills its worker, the others take so long."""
    counts, todo, culprit = [0] * len(takes), set(range(len(takes))), len(takes) - 1
    while culprit in todo:
        let, clock = apart()
        inside: dict[int, tuple[float, Any]] = {}
        while culprit not in inside or clock.now < inside[culprit][0] + kills_after:
            for each in chance.sample(sorted(todo - set(inside)), len(todo - set(inside))):
                letter = message()
                if not counts[each] or let.admits(letter, counts[each]):
                    inside[each] = clock.now, letter
            clock.now += 0.4
            for each in [each for each in inside if each != culprit and clock.now >= inside[each][0] + takes[each]]:
                inside.pop(each)[1].acknowledged = True
                todo.remove(each)
        for each in inside:
            counts[each] += 1
        if judge_message(counts[culprit], 0, limit) is Suspicion.POISON:
            todo.remove(culprit)
    assert not any(judge_message(count, 0, limit) is Suspicion.POISON for count in counts[:culprit])
    return counts


@given(
    st.lists(st.floats(0.1, 25), min_size=1, max_size=4),
    st.floats(0.1, 15),
    st.integers(3, 6),
    st.randoms(use_true_random=False),
)
def test_nobody_goes_down_with_the_same_culprit_a_third_time_however_long_both_take(
    takes: list[float], kills_after: float, limit: int, chance: random.Random
) -> None:
    counts = deaths_of([*takes, 0.0], kills_after, limit, chance)
    assert counts[-1] == limit
    assert max(counts[:-1]) <= 2
