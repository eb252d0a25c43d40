"""Which task carried a delivery, as notes say it; anybody may have written into that stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bridge.ledger import Account
from bridge.ledger.task_notes import SINGLE_TASKS, find_noted_tasks

ACCOUNT = Account("h", "orders", "id", 0)
OF = b'["h", "orders", "id", 0]'


class Stream:
    """A ledger with these notes, the newest first."""

    cluster, group = "c", "g"

    def __init__(self, *notes: dict[bytes, bytes]) -> None:
        self.notes = notes

    @contextmanager
    def asking(self, doing: str) -> Iterator[Any]:
        yield self

    def xrevrange(self, name: str, **options: Any) -> None:
        pass

    def execute(self) -> Any:
        return [[(b"1-0", fields) for fields in self.notes]]


def tasks_of(*notes: dict[bytes, bytes]) -> dict[int, str]:
    ledger: Any = Stream(*notes)
    return {offset: task for (_, offset), task in find_noted_tasks(ledger, [(ACCOUNT, n) for n in range(4)]).items()}


GOOD = {b"of": OF, b"task": b"older", b"ended": b"[[1, 2]]"}


def test_the_newest_note_of_a_delivery_names_its_task_and_what_is_in_none_has_none() -> None:
    assert tasks_of({b"of": OF, b"task": b"newer", b"ended": b"[[2, 2]]"}, GOOD) == {1: "older", 2: "newer"}


def test_what_was_alone_has_its_own_name() -> None:
    assert tasks_of({b"of": OF, b"task": SINGLE_TASKS.encode(), b"ended": b"[[3, 3]]"}) == {3: "orders-0-3:h"}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {b"task": b"t"},
        {b"of": OF, b"task": b"t"},
        {b"of": OF, b"ended": b"[[1, 2]]"},
        {b"of": OF, b"task": b"t", b"ended": b"{"},
        {b"of": OF, b"task": b"t", b"ended": b"7"},
        {b"of": OF, b"task": b"t", b"ended": b"[7]"},
        {b"of": OF, b"task": b"t", b"ended": b'[["a", "b"]]'},
        {b"of": OF, b"task": b"t", b"ended": b"\xff"},
        {b"of": b"\xff", b"task": b"\xff", b"ended": b"[[1, 2]]"},
        {b"of": OF, b"task": b"t", b"ended": b"[" * 100_000},
    ],
)
def test_what_is_no_note_is_passed_over(broken: dict[bytes, bytes]) -> None:
    assert tasks_of(broken, GOOD) == {1: "older", 2: "older"}
