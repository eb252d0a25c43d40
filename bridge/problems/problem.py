"""A problem that needs a person: a sentence, and its content as values."""

from typing import Any, Final, Self

from bridge.formats.text_forms import format_time
from bridge.problems.problem_row import ProblemRow
from bridge.problems.problem_table import PROBLEM_ROWS

_VALUES: Final = (
    *("kind", "what", "topic", "handler", "group", "since", "many", "of", "lost", "do"),
    *("queue", "dependency", "handlers"),
)


class Problem(str):
    """A problem that needs a person: the sentence tells what, since when, how many, and what to do.

    Attributes:
        kind: its kind, a word that programs may rely on.
        what: the problem in a few words.
        topic, handler, group, queue, dependency: its subject, a failure group by its id; `None`: none.
        handlers: the handlers of a problem that is about several.
        since: Unix time; `None`: not known.
        many, of: number and unit; `None`: not known, or nothing is counted.
        lost: how many of these are lost, or may be; `None`: not known.
        do: what to do: a command, or a few words.
    """

    kind: str
    what: str
    topic: str | None
    handler: str | None
    group: int | None
    since: float | None
    many: int | None
    of: str
    lost: int | None
    do: str
    queue: str | None
    dependency: str | None
    handlers: tuple[str, ...]

    def __new__(
        cls,
        sentence: str,
        kind: str,
        what: str,
        *,
        topic: str | None = None,
        handler: str | None = None,
        group: int | None = None,
        since: float | None = None,
        many: int | None = None,
        of: str = "",
        lost: int | None = 0,
        do: str = "",
        queue: str | None = None,
        dependency: str | None = None,
        handlers: tuple[str, ...] = (),
    ) -> Self:
        """Make a problem of a sentence and its values."""
        made = super().__new__(cls, sentence)
        values = (kind, what, topic, handler, group, since, many, of, lost, do, queue, dependency, handlers)
        for name, value in zip(_VALUES, values, strict=True):
            setattr(made, name, value)
        return made

    @property
    def row(self) -> ProblemRow:
        """Return its row in the table of problems."""
        return PROBLEM_ROWS[self.kind]

    def __getnewargs_ex__(self) -> tuple[tuple[str, str, str], dict[str, Any]]:
        """Return the arguments of a copy."""
        return (str(self), self.kind, self.what), {name: getattr(self, name) for name in _VALUES[2:]}

    def data(self) -> dict[str, Any]:
        """Return the problem as JSON data."""
        values = {name: getattr(self, name) for name in _VALUES}
        since = None if self.since is None else format_time(self.since)
        row = {"id": self.row.identifier, "runbook": self.row.runbook}
        return {**row, **values, "handlers": [*self.handlers], "since": since, "sentence": str(self)}


def make_problem(
    row: ProblemRow,
    case: str = "",
    *,
    topic: str | None = None,
    handler: str | None = None,
    group: int | None = None,
    since: float | None = None,
    many: int | None = None,
    of: str | None = None,
    lost: int | None = 0,
    queue: str | None = None,
    dependency: str | None = None,
    handlers: tuple[str, ...] = (),
    **details: object,
) -> Problem:
    """Return a problem in the words of its row.

    Parameters:
        case: the case of the problem, if the row has words for several.
        of: the unit, if it is not that of the row.
        details: what the words name besides its subject.
    """
    words = row.choose_words(case)
    subject = {"topic": topic, "handler": handler, "group": group, "queue": queue, "dependency": dependency}
    values = {**subject, **details}
    what = words.what.format_map(values)
    return Problem(
        words.sentence.format_map({**values, "what": what}),
        row.kind,
        what,
        topic=topic,
        handler=handler,
        group=group,
        since=since,
        many=many,
        of=words.of if of is None else of,
        lost=lost,
        do=words.do.format_map(values),
        queue=queue,
        dependency=dependency,
        handlers=handlers,
    )
