"""What audit and status found, as people read it."""

import io
from typing import Any

from rich.console import Console

from bridge.inspection import report_tables
from bridge.inspection.topic_audit import TopicAudit
from bridge.ledger.unaccounted_offsets import AuditLine

STATUS: dict[str, Any] = {
    "group": "shop",
    "problems": [],
    "topics": None,
    "queues": {},
    "oldest": [],
    "policies": {},
    "bridges": {},
    "workers": {},
    "unanswered": [],
}


def waits(**tier: Any) -> str:
    out = io.StringIO()
    found = {"topic": "orders.retry.5m", "records": 7, "next_due": "2026-01-31T12:00:00+00:00", **tier}
    report_tables.print_status(Console(file=out, width=200), {**STATUS, "parked": [found]})
    return out.getvalue()


def test_what_is_due_next_says_when_and_what_is_late_by_how_much():
    assert "7 records wait there, the next due at 2026-01-31T12:00:00+00:00\n" in waits(late_seconds=0.0)
    late = waits(late_seconds=420.0)
    assert "the first was due at 2026-01-31T12:00:00+00:00 and is 7 min late" in late
    assert "the next due" not in late


def test_what_is_unaccounted_for_ends_no_sentence_with_nothing():
    out = io.StringIO()
    line = AuditLine("charge", 0, 0, 9, 9, 0, unaccounted=3, parked_nowhere=[2, 3, 4])
    report_tables.print_audit(Console(file=out, width=200), TopicAudit("orders", [line]))
    assert "unaccounted for: 3\n" in out.getvalue()
    assert "done ones too" in " ".join(out.getvalue().split())
