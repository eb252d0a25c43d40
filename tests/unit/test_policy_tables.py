"""Policies as people read them."""

import io
from typing import Any

from rich.console import Console

from bridge.inspection import report_tables as tables

CODES: dict[str, Any] = {"max_retries": None, "retry_delays": None, "retry_backoff": 1, "stop_for": []}
CHANGE = {"was": [], "is": ["KeyError"], "by": "ann@desk", "at": "2026-01-31T03:00:00+00:00", "why": "[red] alert"}


def printed(**found: dict[str, Any]) -> list[str]:
    out = io.StringIO()
    tables.print_policies(Console(file=out, width=80), found)
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_retries_without_an_end_are_shown_and_limits_that_nobody_has_set_are_not():
    assert printed(charge={"policy": CODES, "changed": {}, "fault": None})[2:] == [
        "charge max_retries none",
        "retry_backoff 1",
    ]


def test_what_was_changed_is_shown_with_what_the_code_says_and_by_whom():
    policy = {**CODES, "stop_for": ["KeyError"]}
    assert printed(charge={"policy": policy, "changed": {"stop_for": CHANGE}, "fault": None})[-1] == (
        "stop_for KeyError none by ann@desk at 2026-01-31T03:00:00+00:00: [red] alert"
    )


def test_why_what_was_changed_is_not_in_force_is_said():
    found = printed(gone={"policy": {}, "changed": {"stop_for": CHANGE}, "fault": "no handler has this name."})
    assert found[-1] == "gone: the changed policy is not in force: no handler has this name."
