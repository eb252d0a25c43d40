"""Which gates a delivery must pass: what a shut one keeps back waits in the broker (lossless/transport/gates.py).

Two kinds: of a topic, which a halt shuts, and of what a handler needs, which a breaker shuts. Both are of a group.
"""

from collections.abc import Iterable
from urllib.parse import quote, unquote

from lossless.transport.gates import gates_of


def topic_gate(group: str, topic: str) -> str:
    """The gate of all deliveries of a topic."""
    return f"{_part(group)}:topic:{_part(topic)}"


def needs_gate(group: str, dependency: str) -> str:
    """The gate of all deliveries that need a dependency."""
    return f"{_part(group)}:needs:{_part(dependency)}"


def gates_for(group: str, topic: str, needs: Iterable[str] = ()) -> str:
    """The property `gates` of a message with deliveries of a topic.

    Parameters:
        topic: the origin's.
        needs: the dependencies of their handler.
    """
    return gates_of([topic_gate(group, topic), *(needs_gate(group, each) for each in needs)])


def gated_topic(group: str, gate: str) -> str | None:
    """The topic of a gate; `None`: it is another group's, or of something else."""
    start = f"{_part(group)}:topic:"
    return unquote(gate.removeprefix(start)) if gate.startswith(start) else None


def _part(name: str) -> str:
    # A group may have any name: what is no letter, digit or -._~ is written %2F.
    return quote(name, safe="")
