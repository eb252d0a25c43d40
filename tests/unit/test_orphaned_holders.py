"""What a closed channel's holder still holds is kept for the tasks that work on it, and for no longer."""

from typing import Any

import pytest

from lossless.transport import message_recovery
from lossless.transport.message_recovery import PATIENCE, OrphanedHolders


class Holder:
    owner = "me"

    def __init__(self, *tags: str) -> None:
        self.tags: tuple[str, ...] = tags
        self.given_back: list[str] = []

    def give_back(self, tag: str, *, front: bool) -> None:
        assert front
        self.given_back.append(tag)
        self.tags = tuple(other for other in self.tags if other != tag)

    def leave(self) -> bool:
        return not self.tags


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    class World:
        now, running, stops = 100.0, {"me.1"}, False

    monkeypatch.setattr(message_recovery, "monotonic", lambda: World.now)
    monkeypatch.setattr(message_recovery, "running_tags", lambda: set(World.running))
    monkeypatch.setattr(message_recovery, "stopping", lambda: World.stops)
    return World


def test_what_runs_is_kept_and_what_nobody_works_on_goes_back_after_a_moment(world: Any) -> None:
    holder: Any = Holder("me.1", "me.2")
    kept = OrphanedHolders()
    kept.add(holder)
    assert not kept.tend(holder)
    assert holder.given_back == []
    world.now += PATIENCE + 0.1
    assert not kept.tend(holder)
    assert holder.given_back == ["me.2"]
    world.running = set()
    assert not kept.tend(holder), "it may be about to settle"
    world.now += PATIENCE + 0.1
    assert kept.tend(holder)
    kept.discard(holder)
    assert holder not in kept


def test_a_message_that_is_worked_on_again_is_idle_from_anew(world: Any) -> None:
    holder: Any = Holder("me.2")
    kept = OrphanedHolders()
    for running in (set(), {"me.2"}, set()):
        world.running = running
        kept.tend(holder)
        world.now += 0.7 * PATIENCE
    kept.tend(holder)
    assert holder.given_back == []


def test_a_worker_that_stops_keeps_nothing_for_its_tasks(world: Any) -> None:
    holder: Any = Holder("me.1")
    kept, world.stops = OrphanedHolders(), True
    kept.tend(holder)
    world.now += PATIENCE + 0.1
    assert kept.tend(holder)
