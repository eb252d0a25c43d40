"""The table of problems: everything that `status`, the console, `/metrics` and the alert rules say of one is from here.

The rows, with the thresholds of their alerts, are in `bridge/problems/*_problem_rows.py`. The identifier of a row is
the anchor of its runbook in `docs/runbooks/problems.md`. alert_rule_writer.py writes `deploy/alerts.yml` from the rows.
"""

from typing import Final

from bridge.problems import (
    bridge_problem_rows,
    dead_letter_problem_rows,
    delivery_problem_rows,
    topic_problem_rows,
    worker_problem_rows,
)
from bridge.problems.problem_row import ProblemRow

_MODULES: Final = (
    bridge_problem_rows,
    worker_problem_rows,
    topic_problem_rows,
    delivery_problem_rows,
    dead_letter_problem_rows,
)
#: Every row, in the order in which the modules declare them.
PROBLEM_TABLE: Final[tuple[ProblemRow, ...]] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, ProblemRow)
)
PROBLEM_ROWS: Final[dict[str, ProblemRow]] = {row.kind: row for row in PROBLEM_TABLE}


def runbook_entry(row: ProblemRow) -> str:
    """Return the beginning of the entry that `docs/runbooks/problems.md` has for a problem."""
    alerts = ", ".join(f"`{alert.name}`" for alert in row.alerts) or f"none: {row.unalerted}"
    return (
        f"## {row.identifier}\n\n- **Means:** {row.means}\n- **Do:** {row.advice}\n"
        f"- **Said:** {row.said}. **Alerts:** {alerts}.\n"
    )
