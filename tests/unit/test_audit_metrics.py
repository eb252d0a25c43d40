"""What the metrics' audit counts."""

from typing import Any

import pytest

from bridge.jobs.audit_metrics import AUDITED, AUDITED_AT_MOST, find_audit_start
from bridge.ledger import RETRY_RECORD
from bridge.ledger.unaccounted_offsets import AuditLine


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
    assert find_audit_start(low, committed, before) == first


def test_a_forgotten_retry_record_is_missing_only_as_the_delivery_of_its_source():
    """Else status says it until Kafka drops the record, after `bridge reset` has run the delivery again, too."""
    counts: dict[str, Any] = {"forgotten": 4, "evicted": 2, "unaccounted": 1}
    assert AuditLine(RETRY_RECORD, 0, 0, 9, 9, 0, **counts).missing == 3
    assert AuditLine("charge", 0, 0, 9, 9, 0, **counts).missing == 7
