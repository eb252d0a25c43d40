"""Visits every state that a model can come to, and looks at each (pure).

What a model checker does, on small bounds: all states that the steps and the faults lead to are visited, breadth first,
so that what is found wrong is told by the shortest way to it.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """What may happen next.

    Attributes:
        fault: whether nobody can rely on it: a crash, a freeze, a wipe.
    """

    name: str
    after: S
    fault: bool = False


class Broken(AssertionError):
    """A promise that some way through the model breaks, with that way."""


@dataclass(frozen=True)
class Visited(Generic[S]):
    """All that can be reached."""

    states: int
    steps: int
    ends: int


def visit(
    start: S,
    steps_of: Callable[[S], Iterable[Step[S]]],
    wrong: Callable[[S], str | None],
    is_end: Callable[[S], bool],
    most: int = 2_000_000,
) -> Visited[S]:
    """Visit every state; in each nothing may be wrong, and from each an end must be in reach without another fault.

    Parameters:
        wrong: what is wrong with a state, a sentence; `None` if nothing is.
        is_end: whether all that was promised has come about.
        most: states; a model that has more is no small one.

    Raises:
        Broken: with the shortest way to it.
    """
    before: dict[S, tuple[S, str] | None] = {start: None}
    backward: dict[S, list[S]] = {}
    todo, steps, ends = deque([start]), 0, []
    while todo:
        state = todo.popleft()
        if (why := wrong(state)) is not None:
            raise Broken(_told(why, state, before))
        if is_end(state):
            ends.append(state)
        for step in steps_of(state):
            steps += 1
            if step.after not in before:
                if len(before) >= most:
                    raise AssertionError(f"more than {most} states: give the model smaller bounds")
                before[step.after] = (state, step.name)
                todo.append(step.after)
            if not step.fault:
                backward.setdefault(step.after, []).append(state)
    _end_in_reach(before, backward, ends)
    return Visited(len(before), steps, len(ends))


def _end_in_reach(before: dict[S, tuple[S, str] | None], backward: dict[S, list[S]], ends: list[S]) -> None:
    """Each state must lead to an end by itself: what does not is lost, or stands still for ever."""
    reach, todo = set(ends), list(ends)
    while todo:
        for state in backward.get(todo.pop(), ()):
            if state not in reach:
                reach.add(state)
                todo.append(state)
    for state in before:
        if state not in reach:
            raise Broken(_told("from here nothing leads to an end", state, before))


def _told(why: str, state: S, before: dict[S, tuple[S, str] | None]) -> str:
    return "\n".join([why, *(f"  {name}" for name in way_to(state, before)), f"  -> {state}"])


def way_to(state: S, before: dict[S, tuple[S, str] | None]) -> Iterator[str]:
    """The names of the steps that lead to a state, from the start on."""
    names = []
    at: S = state
    while (found := before[at]) is not None:
        at, name = found
        names.append(name)
    yield from reversed(names)
