"""The writer of the alert rules for Prometheus, which `make reference` writes into `deploy/alerts.yml`.

It decides nothing: the rows of the problems in `bridge/problems/*_problem_rows.py` have the rules and their thresholds.
"""

from collections.abc import Iterator

from bridge.problems.problem_table import PROBLEM_TABLE


def write_alert_rules() -> str:
    """Return the rules for Prometheus, as `deploy/alerts.yml` has them."""
    return "\n".join(_write_lines()) + "\n"


def _write_lines() -> Iterator[str]:
    yield "# Written by `make reference`. The rules and their thresholds are in"
    yield "# bridge/problems/*_problem_rows.py: change them there, and write this file again."
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
