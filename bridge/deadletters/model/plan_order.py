"""The order in which a plan sends (pure): the lanes of ordered deliveries, of which the next one is sent when the one
ahead has ended; and the waves of a canary, with the decision when the next one goes out or the plan stops.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from bridge.deadletters.model.bulk_plan import UNENDED, PlanItemState
from bridge.deadletters.model.digest import compute_digest
from bridge.settings import Settings


class OrderedCourse(NamedTuple):
    """The ordered deliveries of a topic to one handler, or to all handlers of its `sequence`, which share lanes.

    Attributes:
        number: its id.
        by_key: whether each key has a lane; else each partition.
    """

    number: int
    by_key: bool

    def lane(self, partition: int, key: int | None) -> int | None:
        """Return the lane of a delivery; `None` if it is unordered, as without a key.

        Parameters:
            key: the key's digest (`key_digest`).
        """
        if not self.by_key:
            return self.number ^ partition
        return None if key is None else self.number ^ partition ^ key


def find_course(settings: Settings, group: str, topic: str, handler: str) -> OrderedCourse | None:
    """Return the course of a handler's deliveries; `None` if the topic has no order.

    Parameters:
        group: the consumer group that handed them off.
    """
    chosen = settings.topic(topic)
    if chosen.order is None:
        return None
    together = chosen.sequence if handler in chosen.sequence else (handler,)
    number = int.from_bytes(compute_digest(group, topic, *together)[:8], "big", signed=True)
    return OrderedCourse(number, chosen.order == "key")


def find_ordered_topics(settings: Settings) -> list[str]:
    """Return the topics that have an order."""
    return sorted(topic for topic, chosen in settings.file.kafka_topics.items() if chosen.order)


#: Letters of each wave; the rest is the last wave.
WAVES: Final = (1, 5, 20, 100)
#: The number of first waves in which all must end well; and the share for the later ones.
ALL_OF: Final = 2
PART: Final = 0.95
#: Seconds to wait for the outcomes of a wave. Its letters are not retried, but may be in a long queue, or be put
#: off: their topic is halted, a dependency is down, their handler raises `RetryLater`.
WAITS: Final = 3_600.0


class CanaryTurn(Enum):
    """The next step of a canary."""

    WAIT = "wait"
    GO_ON = "go on"
    STOP = "stop"


class CanaryDecision(NamedTuple):
    """The next step of a canary, with the reason for a stop."""

    turn: CanaryTurn
    why: str = ""


def find_wave(position: int) -> int:
    """Return the wave of the item at a position of a plan, counted from 1."""
    end = 0
    for wave, size in enumerate(WAVES):
        end += size
        if position <= end:
            return wave
    return len(WAVES)


def find_stage(wave: int, starts: Sequence[int]) -> int:
    """Return how many waves a canary had behind it at a wave, since it began or was last resumed.

    Parameters:
        starts: the waves at which it was resumed (`PlanOptions.canary_starts`).
    """
    return wave - max((start for start in starts if start <= wave), default=0)


def decide_next_wave(
    wave: int, outcomes: Mapping[str, int], waited: float, starts: Sequence[int] = ()
) -> CanaryDecision:
    """Decide whether the next wave may go out.

    Items that were skipped, refused by Kafka, or discarded say nothing about the handler, and do not count. An unknown
    outcome is no failure: only a death stops a canary at once.

    Parameters:
        wave: the current wave, from 0 on, of which all that may be sent was sent.
        outcomes: its items by state.
        waited: seconds since the last of them was sent.
        starts: the waves at which the canary was resumed.
    """
    stage = find_stage(wave, starts)
    # A waiting item is held by its predecessor in the lane.
    pending = sum(outcomes.get(state, 0) for state in UNENDED)
    good = outcomes.get(PlanItemState.DONE, 0)
    bad, unknown = outcomes.get(PlanItemState.DEAD, 0), outcomes.get(PlanItemState.UNKNOWN, 0)
    # Even if all items in flight ended well, too few would have.
    best = good + pending + unknown
    if _too_many_died(stage, bad, best + bad):
        return CanaryDecision(CanaryTurn.STOP, f"canary: {bad:,} of {best + bad:,} of wave {wave + 1} died again")
    if not pending and (not unknown or (stage >= ALL_OF and good >= PART * (best + bad))):
        return CanaryDecision(CanaryTurn.GO_ON)
    if waited >= WAITS:
        return CanaryDecision(
            CanaryTurn.STOP,
            f"canary: {pending + unknown:,} of wave {wave + 1} had no outcome after {WAITS:g} s",
        )
    return CanaryDecision(CanaryTurn.WAIT)


def find_canary_limit(stage: int, letters: int) -> int:
    """Return how many deaths in a wave of so many letters stop a plan.

    Parameters:
        stage: as `find_stage` returns it.
    """
    return next(dead for dead in range(1, letters + 2) if _too_many_died(stage, dead, letters))


def _too_many_died(stage: int, dead: int, letters: int) -> bool:
    """Return whether the deaths among the letters of a wave stop its plan."""
    return dead > 0 and (stage < ALL_OF or letters - dead < PART * letters)
