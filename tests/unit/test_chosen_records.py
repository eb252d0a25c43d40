"""Chosen records are read back, and who waits for them hears meanwhile that it is still read."""

from types import SimpleNamespace
from typing import Any

from bridge.kafka.record_reader import RecordPicker


class Reader:
    """A client that has nothing to give at first, and then all records of a partition, one at a time."""

    def __init__(self, silent: int) -> None:
        self._silent, self._at = silent, 0

    def assign(self, places: list[Any]) -> None:
        self._at = places[0].offset

    def consume(self, most: int, within: float) -> list[Any]:
        if self._silent:
            self._silent -= 1
            return []
        self._at += 1
        offset = self._at - 1
        return [SimpleNamespace(error=lambda: None, partition=lambda: 0, offset=lambda: offset)]

    def position(self, places: list[Any]) -> list[Any]:
        return [SimpleNamespace(partition=0, offset=self._at)]


def picking(reader: Reader) -> RecordPicker:
    made = RecordPicker.__new__(RecordPicker)
    made._topic, made._client = "orders", reader  # type: ignore[assignment]
    return made


def test_a_plan_shows_that_it_lives_while_nothing_comes_and_while_what_lies_between_is_passed():
    heard: list[int] = []
    found: list[int | None] = []
    for record in picking(Reader(silent=3)).records({0: [2, 7]}, lambda: heard.append(len(found))):
        found.append(record.offset())
    assert found == [2, 7]
    # Three times in silence and once for the first; once for each that lies between, and for the last.
    assert heard == [0] * 4 + [1] * 5
