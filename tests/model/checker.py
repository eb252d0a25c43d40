"""Visits every state that a model can come to, and looks at each (pure).

What a model checker does, on small bounds: all states that the steps and the faults lead to are visited, breadth first,
so that what is found wrong is told by the shortest way to it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
    # A state is hashed once for each step that leads to it: that takes most of the time. All else goes by its number.
    numbers: dict[S, int] = {start: 0}
    states, before = [start], [(-1, "")]
    backward: list[list[int]] = [[]]
    steps, ends = 0, []
    for at, state in enumerate(states):
        if (why := wrong(state)) is not None:
            raise Broken(_told(why, at, states, before))
        if is_end(state):
            ends.append(at)
        for name, after, fault in steps_of(state):
            steps += 1
            number = numbers.setdefault(after, len(states))
            if number == len(states):
                if number >= most:
                    raise AssertionError(f"more than {most} states: give the model smaller bounds")
                states.append(after)
                before.append((at, name))
                backward.append([])
            if not fault:
                backward[number].append(at)
    if (lost := _find_lost(backward, ends)) is not None:
        raise Broken(_told("from here nothing leads to an end", lost, states, before))
    return Visited(len(states), steps, len(ends))


def _find_lost(backward: Sequence[Sequence[int]], ends: Sequence[int]) -> int | None:
    """The first state that does not lead to an end by itself: it is lost, or stands still for ever."""
    reach, todo = bytearray(len(backward)), [*ends]
    for at in ends:
        reach[at] = True
    while todo:
        for at in backward[todo.pop()]:
            if not reach[at]:
                reach[at] = True
                todo.append(at)
    return None if (lost := reach.find(0)) < 0 else lost


def _told(why: str, at: int, states: Sequence[S], before: Sequence[tuple[int, str]]) -> str:
    return "\n".join([why, *(f"  {name}" for name in way_to(at, before)), f"  -> {states[at]}"])


def way_to(at: int, before: Sequence[tuple[int, str]]) -> Iterator[str]:
    """The names of the steps that lead to a state, from the start on."""
    names = []
    while at:
        at, name = before[at]
        names.append(name)
    yield from reversed(names)
