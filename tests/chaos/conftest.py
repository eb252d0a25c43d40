"""Stacks of real processes, and their logs in the report of what failed."""

from tests.processes import pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]
