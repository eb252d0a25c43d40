"""The order in which a plan sends: the waves of a canary, and the lanes that keep the order of a key or partition
(pure).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from bridge.deadletters.model.bulk_plan import UNENDED, PlanItemState
from bridge.deadletters.model.stored_letter import compute_digest
from bridge.settings import Settings

#: How many letters the waves have; what is left is the last one.
WAVES: Final = (1, 5, 20, 100)
#: In these waves, the first ones, all must end well; in the later ones, so much of them.
ALL_OF: Final = 2
PART: Final = 0.95
#: Seconds for which the outcomes of a wave are waited for. Its letters are not retried, but may stand in a long queue,
#: or be put off: their topic is halted, what they need is down, their handler asks for `RetryLater`.
WAITS: Final = 3_600.0


class CanaryTurn(Enum):
    """What comes after a look at a wave."""

    WAIT = "wait"
    GO_ON = "go on"
    STOP = "stop"


class CanaryDecision(NamedTuple):
    """What comes now, and of a stop, why."""

    turn: CanaryTurn
    why: str = ""


def find_wave(position: int) -> int:
    """The wave of the delivery at a position of a plan, which are counted from 1."""
    end = 0
    for wave, size in enumerate(WAVES):
        end += size
        if position <= end:
            return wave
    return len(WAVES)


def find_stage(wave: int, starts: Sequence[int]) -> int:
    """Return how many waves a canary had behind it at a wave, since it began or was last gone on with.

    Parameters:
        starts: the waves at which it was gone on with (`Options.canary_starts`).
    """
    return wave - max((start for start in starts if start <= wave), default=0)


def decide_next_wave(
    wave: int, outcomes: Mapping[str, int], waited: float, starts: Sequence[int] = ()
) -> CanaryDecision:
    """Whether the next wave may go out.

    What was skipped, refused by Kafka, or discarded by a person meanwhile says nothing of the handler, and counts
    neither way. A delivery whose end is not known is no failure: only what has died again stops a canary at once.

    Parameters:
        wave: from 0 on, of which all was sent that may be.
        outcomes: of its deliveries, how many have which state.
        waited: seconds since the last of them was sent.
        starts: the waves at which the canary was gone on with.
    """
    stage = find_stage(wave, starts)
    # What still waits is held by what is ahead of it in its lane.
    pending = sum(outcomes.get(state, 0) for state in UNENDED)
    good = outcomes.get(PlanItemState.DONE, 0)
    bad, unknown = outcomes.get(PlanItemState.DEAD, 0), outcomes.get(PlanItemState.UNKNOWN, 0)
    # Also if all that is on its way ended well, too few would have.
    best = good + pending + unknown
    if bad and (stage < ALL_OF or best < PART * (best + bad)):
        return CanaryDecision(CanaryTurn.STOP, f"canary: of {best + bad:,} of wave {wave + 1}, {bad:,} died again")
    if not pending and (not unknown or (stage >= ALL_OF and good >= PART * (best + bad))):
        return CanaryDecision(CanaryTurn.GO_ON)
    if waited >= WAITS:
        return CanaryDecision(
            CanaryTurn.STOP,
            f"canary: of {pending + unknown:,} of wave {wave + 1} it was not known after {WAITS:g} s how they end",
        )
    return CanaryDecision(CanaryTurn.WAIT)


class OrderedCourse(NamedTuple):
    """The deliveries of a topic to one handler, or to all those of its `sequence`: they have their lanes together.

    Attributes:
        number: that stands for them.
        by_key: whether each key has a lane; else each partition.
    """

    number: int
    by_key: bool

    def lane(self, partition: int, key: int | None) -> int | None:
        """The lane of one of them; `None`: it is free of all others, as what has no key is.

        Parameters:
            key: its digest (bridge.deadletters.model.stored_letter.key_digest).
        """
        if not self.by_key:
            return self.number ^ partition
        return None if key is None else self.number ^ partition ^ key


def find_course(settings: Settings, group: str, topic: str, handler: str) -> OrderedCourse | None:
    """Which deliveries those of a handler stand in line with; `None`: the topic has no order.

    Parameters:
        group: that handed them off.
    """
    chosen = settings.topic(topic)
    if chosen.order is None:
        return None
    together = chosen.sequence if handler in chosen.sequence else (handler,)
    number = int.from_bytes(compute_digest(group, topic, *together)[:8], "big", signed=True)
    return OrderedCourse(number, chosen.order == "key")


def find_ordered_topics(settings: Settings) -> list[str]:
    """The topics that have an order."""
    return sorted(topic for topic, chosen in settings.file.kafka_topics.items() if chosen.order)
