"""A canary: letters go back in waves, each only if the one before ended well; else the others are left alone (pure).

So that a wave has its answer in seconds, and not after all the retries of a handler that fails still, its letters have
one attempt each. The last wave, for which nobody waits, has the handler's own policy.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from bridge.deadletters.plan.plan import UNENDED, ItemState

#: How many letters the waves have; what is left is the last one.
WAVES: Final = (1, 5, 20, 100)
#: In these waves, the first ones, all must end well; in the later ones, so much of them.
ALL_OF: Final = 2
PART: Final = 0.95
#: Seconds for which the outcomes of a wave are waited for. Its letters are not retried, but may stand in a long queue,
#: or be put off: their topic is halted, what they need is down, their handler asks for `RetryLater`.
WAITS: Final = 3_600.0


class Turn(Enum):
    """What comes after a look at a wave."""

    WAIT = "wait"
    GO_ON = "go on"
    STOP = "stop"


class Decision(NamedTuple):
    """What comes now, and of a stop, why."""

    turn: Turn
    why: str = ""


def wave_of(position: int) -> int:
    """The wave of the delivery at a position of a plan, which are counted from 1."""
    end = 0
    for wave, size in enumerate(WAVES):
        end += size
        if position <= end:
            return wave
    return len(WAVES)


def stage_of(wave: int, starts: Sequence[int]) -> int:
    """Return how many waves a canary had behind it at a wave, since it began or was last gone on with.

    Parameters:
        starts: the waves at which it was gone on with (`Options.canary_starts`).
    """
    return wave - max((start for start in starts if start <= wave), default=0)


def decide(wave: int, outcomes: Mapping[str, int], waited: float, starts: Sequence[int] = ()) -> Decision:
    """Whether the next wave may go out.

    What was skipped, refused by Kafka, or discarded by a person meanwhile says nothing of the handler, and counts
    neither way. A delivery whose end is not known is no failure: only what has died again stops a canary at once.

    Parameters:
        wave: from 0 on, of which all was sent that may be.
        outcomes: of its deliveries, how many have which state.
        waited: seconds since the last of them was sent.
        starts: the waves at which the canary was gone on with.
    """
    stage = stage_of(wave, starts)
    # What still waits is held by what is ahead of it in its lane.
    pending = sum(outcomes.get(state, 0) for state in UNENDED)
    good = outcomes.get(ItemState.DONE, 0)
    bad, unknown = outcomes.get(ItemState.DEAD, 0), outcomes.get(ItemState.UNKNOWN, 0)
    # Also if all that is on its way ended well, too few would have.
    best = good + pending + unknown
    if bad and (stage < ALL_OF or best < PART * (best + bad)):
        return Decision(Turn.STOP, f"canary: of {best + bad:,} of wave {wave + 1}, {bad:,} died again")
    if not pending and (not unknown or (stage >= ALL_OF and good >= PART * (best + bad))):
        return Decision(Turn.GO_ON)
    if waited >= WAITS:
        return Decision(
            Turn.STOP,
            f"canary: of {pending + unknown:,} of wave {wave + 1} it was not known after {WAITS:g} s how they end",
        )
    return Decision(Turn.WAIT)
