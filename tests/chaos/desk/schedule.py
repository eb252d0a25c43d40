"""What befalls the desk, and what it rests on (pure)."""

from collections.abc import Mapping
from typing import Final

from tests.chaos.schedule import DEAD_AFTER, SESSION, Kind, Lane

RECORDER: Final = Lane(
    (Kind("killed", 3), Kind("told to stop", 1), Kind("frozen", 2, (SESSION + 1, SESSION + 3))),
    rest=(3, 8),
)
OPERATOR: Final = Lane((Kind("killed", 3, (0.2, 4)), Kind("frozen", 1, (0.5, 4))), rest=(2, 6))
POSTGRES: Final = Lane(
    (
        Kind("killed", 3, (0.1, 3)),
        Kind("told to stop", 1, (0.1, 1)),
        Kind("frozen", 3, (0.5, 5)),
        Kind("a backend killed", 2),
        Kind("connections cut", 2),
    ),
    rest=(2, 7),
)
LINK: Final = Lane(
    (Kind("cut", 4), Kind("refused", 2, (0.3, 3)), Kind("silent", 2, (0.5, 5)), Kind("slow", 2, (1, 3))), rest=(5, 10)
)
REDIS: Final = Lane(
    (
        Kind("killed", 2, (0.1, 2)),
        Kind("frozen", 2, (0.5, 4)),
        Kind("connections cut", 1),
        Kind("out of memory", 1, (0.5, 3)),
        Kind("fails over", 1),
        Kind("goes back", 1, (1, 4)),
        Kind("wiped", 1),
    ),
    rest=(2, 7),
)
KAFKA: Final = Lane((Kind("killed", 1, (0.1, 2)), Kind("frozen", 2, (0.5, 5))), rest=(10, 25))
BRIDGE: Final = Lane(
    (Kind("killed", 3), Kind("told to stop", 1), Kind("frozen", 1, (SESSION + 1, SESSION + 3))), rest=(10, 20)
)
WORKER: Final = Lane(
    (Kind("killed", 2), Kind("child killed", 3), Kind("frozen", 1, (DEAD_AFTER + 1, DEAD_AFTER + 3))), rest=(8, 16)
)

LANES: Final[Mapping[str, Lane]] = {
    "recorder 1": RECORDER,
    "recorder 2": RECORDER,
    "operator": OPERATOR,
    "postgres": POSTGRES,
    "link postgres": LINK,
    "link redis": LINK,
    "link kafka": LINK,
    "redis": REDIS,
    "kafka": KAFKA,
    "bridge": BRIDGE,
    "worker": WORKER,
}
