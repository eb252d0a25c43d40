"""What is handed off of retry topics and in no lag: of those that are there, were made again, or are gone."""

from typing import Any

import pytest

from bridge.formats.retry_record import RetryRecordPosition
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, KnownLog, Ledger, LogHistory, Mark
from bridge.ledger.unsettled_retry_records import count_handed_records, find_records_to_run

TIER = "orders.retry.5m"
NOW = Account(RETRY_RECORD, TIER, "id", 0)


def count(ledger: Ledger, *there: Extent) -> dict[str, int]:
    return count_handed_records(ledger, lambda topic: topic.startswith("orders."), there, {TIER: "id"})


def hand(ledger: Ledger, account: Account, *offsets: int) -> None:
    Accounts(ledger).join(account, 0)
    ledger.write([Mark(account, offsets, Fate.HANDED)])


def test_what_is_handed_off_is_counted_once_be_it_committed_or_not(there: tuple[Any, Ledger]):
    _, ledger = there
    hand(ledger, NOW, *range(10))
    ledger.write([Mark(NOW, [2], Fate.DONE)])
    hand(ledger, Account(RETRY_RECORD, "bills.retry.5m", "id", 0), 0)
    hand(ledger, Account("orders.handlers.charge", TIER, "id", 0), 0)
    # From 6 on the lag has them.
    assert count(ledger, Extent(TIER, 0, 0, 20, 6)) == {TIER: 5}
    assert count(ledger, Extent(TIER, 0, 0, 20, None)) == {}
    # Of what retention took it has none.
    assert count(ledger, Extent(TIER, 0, 4, 20, 1)) == {TIER: 3}


@pytest.mark.parametrize("known", [None, KnownLog("id", 1)], ids=["of a topic made again", "of a log that was cut"])
def test_what_is_handed_off_of_a_log_that_is_no_more_counts_whole(there: tuple[Any, Ledger], known: KnownLog | None):
    _, ledger = there
    before = NOW if known else NOW._replace(topic_id="before")
    if known:
        LogHistory(ledger).note((TIER, 0), known)
    hand(ledger, before, *range(4))
    assert count(ledger, Extent(TIER, 0, 0, 20, None)) == {TIER: 4}
    assert count(ledger) == {TIER: 4}
    ledger.write([Mark(before, range(4), Fate.DONE)])
    assert count(ledger) == {}


@pytest.mark.parametrize(
    ("fate", "ahead", "passed"),
    [
        (Fate.OPEN, True, False),
        (Fate.HANDED, True, True),
        (Fate.DONE, False, False),
        (Fate.GAP, False, False),
    ],
)
def test_what_lies_in_a_retry_topic_is_yet_to_run_where_it_is_handed_off_or_open_and_to_be_read(
    there: tuple[Any, Ledger], fate: Fate, ahead: bool, passed: bool
):
    """And of a log that was made again the other's fates say nothing."""
    _, ledger = there
    LogHistory(ledger).note((TIER, 0), KnownLog("id", 1))
    ledger.write([Mark(Account(RETRY_RECORD, TIER, "id.1", 0), [3, 4], fate), Mark(NOW, [5], Fate.DONE)])
    lying = [
        RetryRecordPosition(TIER, 0, 3, passed=False),
        RetryRecordPosition(TIER, 0, 4, passed=True),
        RetryRecordPosition(TIER, 0, 5, passed=False),
    ]
    assert find_records_to_run(ledger, lying) == {
        each for each, comes in zip(lying, (ahead, passed, True), strict=True) if comes
    }


def test_without_a_ledger_what_is_committed_has_gone_out():
    lying = [RetryRecordPosition(TIER, 0, 3, passed=False), RetryRecordPosition(TIER, 0, 2, passed=True)]
    assert find_records_to_run(None, lying) == {lying[0]}
