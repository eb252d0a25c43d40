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


def test_a_limit_is_shown_with_its_numbers_and_with_what_runs_and_waits():
    limit = {"per_second": 50, "burst": 100, "concurrency": 20, "running": 7, "waiting": 1_200, "wait_seconds": 24.0}
    said = "limit bank: 50 a second, bursts of 100, 7 of 20 running"
    assert report_tables.describe_limit("bank", limit) == f"{said}; about 1,200 deliveries wait up to 24 s"
    calm = {**limit, "waiting": 0, "wait_seconds": 0.0, "per_second": None}
    assert report_tables.describe_limit("bank", calm) == "limit bank: 7 of 20 running; no delivery waits"
    out = io.StringIO()
    status = {**STATUS, "parked": [], "limits": {"bank": limit}}
    report_tables.print_status(Console(file=out, width=200), status)
    assert said in out.getvalue()
