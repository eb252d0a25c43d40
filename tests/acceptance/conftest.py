"""Stacks of real processes, and their logs in the report of what failed."""

from tests.processes import mortal_stack, pytest_runtest_makereport, stack

__all__ = ["mortal_stack", "pytest_runtest_makereport", "stack"]
