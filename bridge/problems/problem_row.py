"""The row of a problem: everything that `status`, the console, `/metrics` and the alert rules say of it.

The rows are in `bridge/problems/*_problem_rows.py`. A new problem is one row, and a function that finds it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

#: Seconds within which a problem is said that stops all work, and any other.
STOPS_ALL: Final = 30
OTHERS: Final = 60

#: The end of an alert's expression that does not fire while a dependency is down, whose own alert does.
UNLESS_DOWN: Final = "unless on () max(bridge_breaker_open) > 0"


class AlertRule(NamedTuple):
    """A rule for Prometheus.

    Attributes:
        lasts: for how long it must be so; empty: it fires at once.
    """

    name: str
    expression: str
    summary: str
    lasts: str = ""


class ProblemWords(NamedTuple):
    """The words for one case of a problem: templates, filled with values by `make_problem`.

    Attributes:
        sentence: what, since when, how many, and what to do; `{what}` is the next field, filled.
        what: the problem in a few words.
        do: what to do, in a few words.
        of: the unit of the number; empty: nothing is counted.
    """

    sentence: str
    what: str
    do: str
    of: str = ""


class KnownCause(NamedTuple):
    """A problem that explains another one, where both concern the same.

    Attributes:
        identifier: of its row.
        shared: what both concern: "handler", "topic" or "queue"; empty: it concerns the whole group.
    """

    identifier: str
    shared: str = ""


class ProblemRow(NamedTuple):
    """One problem.

    Attributes:
        kind: the word of `problem_values`.
        identifier: its name in `status`, on `/metrics`, in the rules, and the anchor of its runbook.
        means: what is wrong.
        advice: what to do.
        words: its words, by case if there are several.
        within: seconds after which `bridge status` says it at the latest, while bridges and workers run; `None`: it
            depends on `period` alone.
        alerts: the rules that tell of it.
        period: what else must have lasted or happened before it is said.
        unalerted: why no rule tells of it; empty: `alerts` do.
        causes: the problems that explain it, the likeliest first: pages list it below the first that fits, and count
            that alone. Of its own row, the first problem is the cause.
        several: the words for several problems of this row that have one cause; `{number}` counts them.
    """

    kind: str
    identifier: str
    means: str
    advice: str
    words: ProblemWords | Mapping[str, ProblemWords]
    within: int | None = OTHERS
    alerts: tuple[AlertRule, ...] = ()
    period: str = ""
    unalerted: str = ""
    causes: tuple[KnownCause, ...] = ()
    several: str = ""

    @property
    def said(self) -> str:
        """Return when `bridge status` says it, for the runbook."""
        return " ".join(filter(None, ("" if self.within is None else f"within {self.within} s", self.period)))

    @property
    def runbook(self) -> str:
        """Return the path of its runbook in the repository, with its anchor."""
        return f"docs/runbooks/problems.md#{self.identifier}"

    def choose_words(self, case: str = "") -> ProblemWords:
        """Return the words for a case; empty: the problem has one case."""
        return self.words if isinstance(self.words, ProblemWords) else self.words[case]


def make_bridge_alert(identifier: str, name: str, summary: str, lasts: str = "1m") -> AlertRule:
    """Return the rule of a problem that bridges see by themselves, and show on `/metrics` as a number of sentences."""
    return AlertRule(
        name, f'max(bridge_problems{{problem="{identifier}"}}) > 0', f"{summary}; see bridge status", lasts
    )
