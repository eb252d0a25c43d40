"""What a test needs and this machine does not have: skipped at home with the reason, failed in CI, and summed up."""

import os
from collections import Counter
from collections.abc import Iterable

import pytest


def need(reason: str | None) -> None:
    """Skip the test for this reason, or fail it with CI=true; None is no reason."""
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def want(reason: str | None) -> None:
    """Skip the test for this reason, also with CI=true: it wants what others publish and may publish no longer."""
    if reason is not None:
        pytest.skip(reason)


def not_run(reasons: Iterable[str]) -> str:
    """One line: how many tests were skipped for what, most first, each reason with how to get what is missing."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    if not counts:
        return "every selected test was run"
    parts = [f"{count} ({reason})" for reason, count in counts.most_common()]
    return f"{counts.total()} selected tests were NOT run: {'; '.join(parts)}"
