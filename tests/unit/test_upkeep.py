"""What the metrics' audit counts, and what becomes of stuck deliveries."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import LedgerUnavailable
from bridge.metrics import BridgeMetrics
from bridge.upkeep import AUDITED, AUDITED_AT_MOST, Upkeep, audit_from


@pytest.mark.parametrize(
    ("low", "committed", "before", "first"),
    [
        (0, 0, None, 0),
        (0, 100, None, 0),
        (0, 1_000_000, None, 1_000_000 - AUDITED),
        (0, 1_000_000, 999_000, 1_000_000 - AUDITED),
        (0, 1_000_000, 500_000, 500_000),
        (0, 9_000_000, 500_000, 9_000_000 - AUDITED_AT_MOST),
        (999_999, 1_000_000, 500_000, 999_999),
    ],
    ids=[
        "nothing is committed",
        "little is committed",
        "at the first count",
        "little was committed since",
        "much was committed since, or one far back is unaccounted for",
        "not without limit",
        "what Kafka no longer has was not handled, and is no fault of the ledger",
    ],
)
def test_no_offset_is_passed_over_and_what_is_unaccounted_for_stays_counted(low, committed, before, first):
    assert audit_from(low, committed, before) == first


class Failing:
    """A dispatch whose ledger falls silent at the second partition."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, list[int]]] = []

    def nowhere(self, partition: str, *_: object) -> list[tuple[str, list[int]]]:
        return [("charge", [3, 5])]

    def reopen(self, partition: str, handler: str, offsets: list[int], seconds: float) -> None:
        if self.opened:
            raise LedgerUnavailable("no answer; it may be done all the same")
        self.opened.append((partition, offsets))


def test_what_may_be_open_again_is_read_again_although_the_ledger_did_not_answer():
    ledger: Any = SimpleNamespace(cluster="", group="")
    handoff: Any = SimpleNamespace(carried=lambda queue: {})
    assignment: Any = SimpleNamespace(partitions=["one", "two"])
    dispatch: Any = Failing()
    asked: list[tuple[Any, int]] = []
    upkeep = Upkeep(ledger, handoff, dispatch, assignment, BridgeMetrics(), 60)
    with pytest.raises(LedgerUnavailable):
        upkeep.reopen_stuck(lambda partition, offset: asked.append((partition, offset)))
    assert asked == [("one", 3), ("two", 3)]
