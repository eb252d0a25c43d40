"""The names of the gates that a delivery must pass: of its topic, which a halt shuts, and of its handler's
dependencies, which a circuit breaker shuts.
"""

from collections.abc import Iterable
from urllib.parse import quote, unquote

from lossless.transport.message_gates import format_gates


def topic_gate(group: str, topic: str) -> str:
    """The gate of all deliveries of a topic."""
    return f"{_part(group)}:topic:{_part(topic)}"


def needs_gate(group: str, dependency: str) -> str:
    """The gate of all deliveries that need a dependency."""
    return f"{_part(group)}:needs:{_part(dependency)}"


def again_gate(group: str, dependency: str) -> str:
    """The gate of all deliveries that need a dependency, and have been put off or failed before."""
    return f"{_part(group)}:again:{_part(dependency)}"


def gates_for(group: str, topic: str, needs: Iterable[str] = (), again: bool = False) -> str:
    """The property `gates` of a message with deliveries of a topic.

    Parameters:
        topic: the origin's.
        needs: the dependencies of their handler.
        again: whether they have failed before.
    """
    gate = again_gate if again else needs_gate
    return format_gates([topic_gate(group, topic), *(gate(group, each) for each in needs)])


def gated_topic(group: str, gate: str) -> str | None:
    """The topic of a gate; `None`: it is another group's, or of something else."""
    start = f"{_part(group)}:topic:"
    return unquote(gate.removeprefix(start)) if gate.startswith(start) else None


def gated_dependency(group: str, gate: str) -> str | None:
    """The dependency of a gate; `None`: it is another group's, or of something else."""
    for kind in ("needs", "again"):
        if gate.startswith(start := f"{_part(group)}:{kind}:"):
            return unquote(gate.removeprefix(start))
    return None


def _part(name: str) -> str:
    # A group may have any name: what is no letter, digit or -._~ is written %2F.
    return quote(name, safe="")
