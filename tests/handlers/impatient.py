"""The handler of tests/handlers/simple.py in a bridge that asks for open transactions after seconds."""

from bridge.jobs import open_transactions
from tests.handlers.simple import work

open_transactions.HANGS_AFTER = 3.0  # type: ignore[misc]

__all__ = ["work"]
