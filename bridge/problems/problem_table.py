"""The table of problems: everything that `status`, the console, `/metrics` and the alert rules say of one is from here.

The identifier of a row is the anchor of its runbook in `docs/runbooks/problems.md`.
`deploy/alerts.yml` is written from the rows: `python -m bridge.problems.problem_table > deploy/alerts.yml`.
"""

from collections.abc import Iterator
from typing import Final

from bridge.problems import bridge_problem_rows, delivery_problem_rows, topic_problem_rows, worker_problem_rows
from bridge.problems.problem_row import ProblemRow

_MODULES: Final = (bridge_problem_rows, worker_problem_rows, topic_problem_rows, delivery_problem_rows)
#: Every row, in the order in which the modules declare them.
PROBLEM_TABLE: Final[tuple[ProblemRow, ...]] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, ProblemRow)
)
PROBLEM_ROWS: Final[dict[str, ProblemRow]] = {row.kind: row for row in PROBLEM_TABLE}


def write_alert_rules() -> str:
    """Return the rules for Prometheus, as `deploy/alerts.yml` has them."""
    return "\n".join(_write_lines()) + "\n"


def runbook_entry(row: ProblemRow) -> str:
    """Return the beginning of the entry that `docs/runbooks/problems.md` has for a problem."""
    alerts = ", ".join(f"`{alert.name}`" for alert in row.alerts) or "none"
    return (
        f"## {row.identifier}\n\n- **Means:** {row.means}\n- **Do:** {row.advice}\n"
        f"- **Said:** {row.said}. **Alerts:** {alerts}.\n"
    )


def _write_lines() -> Iterator[str]:
    yield "# Written by `python -m bridge.problems.problem_table`: change the table there, and write this file again."
    yield "groups:"
    yield "  - name: celery-kafka-bridge"
    yield "    rules:"
    for row in PROBLEM_TABLE:
        for alert in row.alerts:
            yield f"      - alert: {alert.name}"
            yield f"        expr: {_quoted(alert.expression)}"
            if alert.lasts:
                yield f"        for: {alert.lasts}"
            yield f"        labels: {{problem: {row.identifier}}}"
            yield f"        annotations: {{summary: {_quoted(alert.summary)}, runbook: {_quoted(row.runbook)}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    print(write_alert_rules(), end="")
