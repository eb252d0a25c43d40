"""The names of the gates: one for each topic, and each halted handler or key (shut by a halt), and two for each
dependency (first attempts and retries; shut by its circuit breaker).

Every message names its topic's gate and those of its dependencies. The gate of a halted handler or key is named only by
messages that met the halt: a handler that is not halted has none.
"""

from collections.abc import Iterable
from urllib.parse import quote, unquote

from bridge.formats.halt_scope import HaltScope, read_encoded_scope
from lossless.transport.message_gates import format_gates


def topic_gate(group: str, topic: str) -> str:
    """Return the gate of all deliveries of a topic."""
    return f"{_part(group)}:topic:{_part(topic)}"


def needs_gate(group: str, dependency: str) -> str:
    """Return the gate of all deliveries that need a dependency."""
    return f"{_part(group)}:needs:{_part(dependency)}"


def again_gate(group: str, dependency: str) -> str:
    """Return the gate of the deliveries that need a dependency and failed or were postponed before."""
    return f"{_part(group)}:again:{_part(dependency)}"


def held_gate(group: str, scope: HaltScope) -> str:
    """Return the gate of the deliveries of a halted handler, or of a halted key."""
    return f"{_part(group)}:held:{scope.encoded}"


def gates_for(group: str, topic: str, needs: Iterable[str] = (), again: bool = False, held: str = "") -> str:
    """Return the property `gates` of a message with deliveries of a topic.

    Parameters:
        topic: the source topic.
        needs: the dependencies of the handler.
        again: whether they have failed before.
        held: the gate of the halt that keeps them back; empty: there is none.
    """
    gate = again_gate if again else needs_gate
    names = [topic_gate(group, topic), *(gate(group, each) for each in needs)]
    return format_gates([*names, held] if held else names)


def gated_topic(group: str, gate: str) -> str | None:
    """Return the topic of a gate; `None` if it is another group's, or of something else."""
    start = f"{_part(group)}:topic:"
    return unquote(gate.removeprefix(start)) if gate.startswith(start) else None


def gated_scope(group: str, gate: str) -> HaltScope | None:
    """Return the halted handler or key of a gate; `None` if it is another group's, or of something else."""
    start = f"{_part(group)}:held:"
    return read_encoded_scope(gate.removeprefix(start)) if gate.startswith(start) else None


def gated_dependency(group: str, gate: str) -> str | None:
    """Return the dependency of a gate; `None` if it is another group's, or of something else."""
    for kind in ("needs", "again"):
        if gate.startswith(start := f"{_part(group)}:{kind}:"):
            return unquote(gate.removeprefix(start))
    return None


def _part(name: str) -> str:
    # A group may have any name; all but letters, digits and -._~ is percent-encoded.
    return quote(name, safe="")
