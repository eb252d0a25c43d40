"""A retry topic that is gone is forgotten once nothing of its source is parked, and no sooner."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.jobs.deleted_topics import DeletedTopic, DeletedTopicSearch

TIER = "orders.retry.1m"


class Book:
    def __init__(self) -> None:
        self.done: list[str] = []

    def note_gone(self, topic: str, at: float) -> None:
        self.done.append("noted")

    def found_again(self, topic: str) -> None:
        self.done.append("found again")

    def forget(self, topic: str) -> None:
        self.done.append("forgotten")


@pytest.mark.parametrize(
    ("parked", "lying", "there", "done"),
    [
        (3, 0, False, ["noted"]),
        (3, 0, True, ["noted"]),
        # What lies in a retry topic may be of another group: it hides for a while what is missing.
        (3, 5, False, []),
        (3, 5, True, []),
        (0, 5, True, ["found again"]),
        (0, 0, False, ["forgotten"]),
    ],
)
def test_what_is_missing_is_noted_and_what_may_be_hidden_is_counted_again(
    parked: int, lying: int, there: bool, done: list[str]
) -> None:
    catalog: Any = SimpleNamespace(waiting={TIER: None} if there else {})
    settings: Any = None
    book: Any = Book()
    gone = DeletedTopic(TIER, "orders", 1_000.0, {"charge": parked} if parked else {}, lying)
    DeletedTopicSearch(settings, None, catalog)._take_in(book, gone)
    assert book.done == done
