"""What goes wrong when: a schedule of faults that follows from a seed alone (pure).

Each target has a lane of its own, in which one fault follows another; the lanes overlap. A lane draws from its own
source, so that a new lane changes none of the others.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """One kind of fault: how often it is drawn, and how many seconds it lasts."""

    name: str
    weight: int
    lasts: tuple[float, float] = (0.0, 0.0)


class Lane(NamedTuple):
    """What may befall one target, and how many seconds it is left alone between two faults."""

    kinds: Sequence[Kind]
    rest: tuple[float, float]


class Fault(NamedTuple):
    """One fault, `at` seconds after the start, for `lasts` seconds; `draw` (0 to 1) decides what else is drawn."""

    at: float
    lane: str
    kind: str
    lasts: float
    draw: float

    def __str__(self) -> str:
        return f"{self.at:7.2f}  {self.lane:<12} {self.kind} ({self.lasts:.2f} s, {self.draw:.3f})"


#: A worker's `dead_after`, and a bridge's session with Kafka: what is frozen is frozen for longer. A machine at its
#: limit may keep a living worker from saying so for two seconds: what it holds would be given away then.
DEAD_AFTER: Final = 4.0
SESSION: Final = 3.0

BRIDGE: Final = Lane(
    (
        Kind("killed", 3),
        Kind("told to stop", 2),
        Kind("frozen", 2, (SESSION + 1, SESSION + 3)),
        Kind("killed, and its clock is wrong", 1),
    ),
    rest=(5, 10),
)
WORKER: Final = Lane(
    (
        Kind("killed", 2),
        Kind("parent killed", 2),
        Kind("child killed", 6),
        Kind("told to stop", 1),
        Kind("frozen", 1, (DEAD_AFTER + 1, DEAD_AFTER + 3)),
        Kind("parent frozen", 1, (DEAD_AFTER + 1, DEAD_AFTER + 3)),
        Kind("killed, and its clock is wrong", 1),
    ),
    rest=(2, 6),
)
REDIS: Final = Lane(
    (
        Kind("killed", 3, (0.1, 2)),
        Kind("told to stop", 1, (0.1, 1)),
        Kind("frozen", 3, (0.5, 4)),
        Kind("connections cut", 4),
        Kind("out of memory", 3, (0.5, 4)),
        Kind("paused", 3, (0.2, 2)),
        Kind("fails over", 2),
        Kind("goes back", 1, (1, 4)),
        Kind("wiped", 1),
    ),
    rest=(1, 5),
)
KAFKA: Final = Lane(
    (
        Kind("killed", 1, (0.1, 2)),
        Kind("frozen", 3, (0.5, 5)),
        Kind("log goes back", 1),
        Kind("topic made again", 2, (0, 2)),
        Kind("dead letters too large", 2, (2, 6)),
        Kind("dead letters without replicas", 2, (2, 6)),
    ),
    rest=(3, 8),
)
LINK: Final = Lane(
    (
        Kind("cut", 4),
        Kind("refused", 2, (0.3, 3)),
        Kind("silent", 2, (0.5, 5)),
        Kind("slow", 3, (1, 4)),
        Kind("narrow", 1, (1, 4)),
    ),
    rest=(2, 6),
)
GROUP: Final = Lane((Kind("a member joins and leaves", 2, (3, 8)), Kind("a member joins and dies", 1, (3, 8))), (3, 8))

PEOPLE: Final = Lane(
    (
        Kind("halt and resume", 2, (3, 8)),
        Kind("policy set and unset", 1, (2, 5)),
        Kind("halt a handler", 1, (3, 8)),
        Kind("halt a key", 1, (3, 8)),
    ),
    rest=(4, 10),
)
DEPENDENCY: Final = Lane((Kind("away", 1, (2, 6)),), (8, 15))

LANES: Final[Mapping[str, Lane]] = {
    "bridge 1": BRIDGE,
    "bridge 2": BRIDGE,
    "worker 1": WORKER,
    "worker 2": WORKER,
    "worker 3": WORKER,
    "redis": REDIS,
    "kafka": KAFKA,
    "link redis": LINK,
    "link kafka": LINK,
    "group": GROUP,
    "people": PEOPLE,
    "dependency": DEPENDENCY,
}


def schedule(seed: int, seconds: float, lanes: Mapping[str, Lane] = LANES) -> list[Fault]:
    """Return the faults of a run, in the order in which they begin: the same for the same seed."""
    return sorted(fault for name, lane in lanes.items() for fault in _lane(seed, seconds, name, lane))


def _lane(seed: int, seconds: float, name: str, lane: Lane) -> Iterable[Fault]:
    draw = random.Random(f"{seed} {name}")
    # Each kind once before any comes a second time, as far as the time reaches.
    first = draw.sample(lane.kinds, len(lane.kinds))
    weights = [kind.weight for kind in lane.kinds]
    at = round(draw.uniform(0, lane.rest[1]), 2)
    while at < seconds:
        kind = first.pop() if first else draw.choices(lane.kinds, weights)[0]
        lasts = round(draw.uniform(*kind.lasts), 2)
        yield Fault(at, name, kind.name, lasts, round(draw.random(), 3))
        at = round(at + lasts + draw.uniform(*lane.rest), 2)
