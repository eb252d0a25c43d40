"""The readiness and liveness of a bridge and of a recorder: the rules of /readyz, /healthz and their gauges."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

#: Seconds without a turn after which a loop counts as stuck.
STUCK_AFTER: Final = 60.0


class Readiness(NamedTuple):
    """The readiness of a process, with its obstacles, a sentence each."""

    ready: bool
    words: list[str]


def decide_readiness(
    obstacles: Sequence[str],
    *,
    halted: Sequence[str] = (),
    consumes_nothing: bool = False,
    others: Sequence[str] = (),
) -> Readiness:
    """Return the readiness of a process: one with some halted topics or handlers is ready, and names them.

    Parameters:
        obstacles: why it does not work, a sentence each.
        halted: a sentence for each halted topic and handler.
        consumes_nothing: whether everything is halted (`is_all_halted`).
        others: the obstacles of what runs beside it in the same process, which it works without.
    """
    return Readiness(not obstacles and not consumes_nothing, [*obstacles, *halted, *others])


def is_all_halted(
    handlers: Mapping[str, Collection[str]],
    halted_topics: Collection[str],
    halted_handlers: Collection[tuple[str, str]],
) -> bool:
    """Return whether every topic is halted, as a whole or in each of its handlers.

    Parameters:
        handlers: by topic.
        halted_handlers: topic and handler of each.
    """
    return all(
        topic in halted_topics or all((topic, name) in halted_handlers for name in names)
        for topic, names in handlers.items()
    )


def list_bridge_obstacles(
    *,
    kafka: str | None,
    handoff: str | None,
    missing: Collection[str],
    topics: Collection[str],
    joined: bool,
    unreadable: str | None = None,
) -> list[str]:
    """Return why a bridge consumes nothing, a sentence each; none if it consumes.

    Parameters:
        kafka, handoff: why Kafka does not answer, and why deliveries cannot be handed off; `None` if that works.
        missing: those of its topics that do not exist yet.
        joined: whether it is a member of the consumer group.
        unreadable: why it cannot read any of its partitions yet; `None` if it can read one.
    """
    obstacles = []
    if kafka:
        obstacles.append(kafka)
    if handoff:
        obstacles.append(f"deliveries cannot be handed off: {handoff}")
    if missing and len(missing) == len(topics):
        obstacles.append(f"no topic to consume exists yet: {', '.join(sorted(missing))}")
    elif not joined and not kafka:
        obstacles.append("joining the consumer group")
    elif unreadable and not kafka:
        obstacles.append(unreadable)
    return obstacles


def is_alive(turned: float, now: float) -> bool:
    """Return whether a loop runs that turned last at this time."""
    return now - turned < STUCK_AFTER
