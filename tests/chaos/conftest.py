"""Stacks of real processes, their logs in the report of what failed, and the order in which runs begin."""

from typing import Final

import pytest

from tests.processes import pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]

#: The modules that begin first. All others together end while the longest runs; the process that has it keeps the next
#: one of its list, whoever is idle, so that is a short one.
FIRST: Final = ("test_seeded", "test_start_with_backlog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest run: it began when a third of the time was over."""
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    chaos = [at for at, item in enumerate(items) if item.path.parent.name == "chaos"]
    ordered = sorted((items[at] for at in chaos), key=lambda item: ranks.get(item.path.stem, len(FIRST)))
    for at, item in zip(chaos, ordered, strict=True):
        items[at] = item
