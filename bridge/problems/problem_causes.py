"""The causes of problems, for people: a problem that follows from another one is listed below it (pure).

`status --json` has every problem. The rows of the table of problems say which problem may be the cause of which.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from bridge.problems.problem_row import KnownCause
from bridge.problems.problem_table import PROBLEM_ROWS

#: The values of a problem: an entry of `problem_values` in `bridge status --json`.
ProblemValues = Mapping[str, Any]


class RoutedHandler(Protocol):
    """What is known of a handler: by it a problem of the handler is one of its topics and its queue, too."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def topics(self) -> Sequence[str]:
        """Return its topics."""

    @property
    def queue(self) -> str:
        """Return its queue."""

    @property
    def needs(self) -> Sequence[str]:
        """Return the names of its dependencies."""


class ProblemCause(NamedTuple):
    """A problem that no other one explains, with those that follow from it.

    Attributes:
        effects: each is listed below every cause that explains it.
    """

    head: ProblemValues
    effects: tuple[ProblemValues, ...] = ()

    @property
    def members(self) -> tuple[ProblemValues, ...]:
        """Return the cause and what follows from it."""
        return self.head, *self.effects

    @property
    def peers(self) -> tuple[ProblemValues, ...]:
        """Return the problems of the same row that are one, such as the failure groups of a handler."""
        return tuple(each for each in self.members if each["kind"] == self.head["kind"])

    @property
    def what(self) -> str:
        """Return the cause in a few words."""
        words = PROBLEM_ROWS[self.head["kind"]].several
        if len(self.peers) == 1 or not words:
            return str(self.head["what"])
        return words.format_map({**self.head, "number": f"{sum(_count_parts(each) for each in self.peers):,}"})

    @property
    def since(self) -> str | None:
        """Return since when, as ISO 8601; `None` if it is not known."""
        return min((each["since"] for each in self.peers if each["since"] is not None), default=None)

    @property
    def many(self) -> int | None:
        """Return how many it concerns; `None` if that is not known, or nothing is counted."""
        counts = [each["many"] for each in self.peers if each["of"] == self.head["of"]]
        return None if None in counts else sum(counts)

    @property
    def lost(self) -> int | None:
        """Return how many of these are lost, or of what follows; `None` if that is not known."""
        counts = [each["lost"] for each in self.members]
        return None if None in counts else sum(counts)


def _count_parts(problem: ProblemValues) -> int:
    """Return how many subjects a problem counts: the last one of growing groups stands for all further ones."""
    return int(problem["many"] or 1) if problem["group"] is None else 1


def group_by_cause(problems: Sequence[ProblemValues], handlers: Iterable[RoutedHandler] = ()) -> list[ProblemCause]:
    """Return the causes in the order of their first problem, each with what follows from it.

    Parameters:
        problems: the worst first.
        handlers: those of the application, with their topics, queues and dependencies.
    """
    routes = {handler.name: handler for handler in handlers}
    parents = [_find_parents(at, problems, routes) for at in range(len(problems))]
    roots = [_find_roots(at, parents) for at in range(len(problems))]
    causes = [at for at, above in enumerate(parents) if not above]
    effects = {root: [each for at, each in enumerate(problems) if root in roots[at] and at != root] for root in causes}
    first = {root: min(at for at, above in enumerate(roots) if root in above) for root in causes}
    return [ProblemCause(problems[root], tuple(effects[root])) for root in sorted(causes, key=lambda at: first[at])]


def _find_parents(at: int, problems: Sequence[ProblemValues], routes: Mapping[str, RoutedHandler]) -> set[int]:
    """Return the problems from which one follows directly; one of several handlers follows if it does for each."""
    problem = problems[at]
    if not problem["handlers"]:
        return _find_first_parents(at, problem, problems, routes)
    alone = ({**problem, "handler": name, "handlers": ()} for name in problem["handlers"])
    found = [_find_first_parents(at, each, problems, routes) for each in alone]
    return set().union(*found) if all(found) else set()


def _find_first_parents(
    at: int, problem: ProblemValues, problems: Sequence[ProblemValues], routes: Mapping[str, RoutedHandler]
) -> set[int]:
    """Return the problems that the first fitting entry of the problem's row names; of its own row the first one."""
    for cause in PROBLEM_ROWS[problem["kind"]].causes:
        is_own = cause.identifier == problem["id"]
        found = [
            other
            for other, each in enumerate(problems)
            if each["id"] == cause.identifier and not (is_own and other >= at) and _share(cause, each, problem, routes)
        ]
        if found:
            return {*found[:1]} if is_own else {*found}
    return set()


def _find_roots(at: int, parents: Sequence[Iterable[int]]) -> set[int]:
    """Return the causes at the end of a problem's parents; the table of problems has no cycle."""
    return {root for above in parents[at] for root in _find_roots(above, parents)} or {at}


def _share(cause: KnownCause, one: ProblemValues, other: ProblemValues, routes: Mapping[str, RoutedHandler]) -> bool:
    if not cause.shared:
        return True
    find = _SUBJECTS[cause.shared]
    return bool(find(one, routes) & find(other, routes))


def _find_handlers(problem: ProblemValues, routes: Mapping[str, RoutedHandler]) -> set[str]:
    if problem["handler"]:
        return {problem["handler"]}
    if problem["handlers"]:
        return {*problem["handlers"]}
    dependency = problem["dependency"]
    return {handler.name for handler in routes.values() if dependency and dependency in handler.needs}


def _find_topics(problem: ProblemValues, routes: Mapping[str, RoutedHandler]) -> set[str]:
    if problem["topic"]:
        return {problem["topic"]}
    return {topic for name in _find_handlers(problem, routes) if name in routes for topic in routes[name].topics}


def _find_queues(problem: ProblemValues, routes: Mapping[str, RoutedHandler]) -> set[str]:
    if problem["queue"]:
        return {problem["queue"]}
    return {routes[name].queue for name in _find_handlers(problem, routes) if name in routes}


#: The subjects of a problem, by what a problem and its cause share.
_SUBJECTS: Final = {"handler": _find_handlers, "topic": _find_topics, "queue": _find_queues}
