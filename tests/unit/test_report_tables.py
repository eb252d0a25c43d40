"""The tables and lines that audit and status print."""

import io
from typing import Any

from rich.console import Console

from bridge.inspection.delivery_trace import estimate_handoff_time
from bridge.inspection.letter_tally import DeathSummary
from bridge.inspection.record_search import SHOWN_ERROR, format_result
from bridge.inspection.report_tables import describe_released, print_audit, print_status
from bridge.inspection.topic_audit import LogChange, TopicAudit
from bridge.ledger.unaccounted_offsets import AuditLine

#: What a status has besides, where there is nothing of it.
NOTHING: dict[str, Any] = {"queues": {}, "oldest": [], "unanswered": [], "parked": [], "policies": {}}


def printed(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_audit_in_a_pipe_cuts_no_name_and_no_number():
    line = AuditLine("orders.handlers.charge", 3, 0, 90_000_000, 90_000_000, 0, done=81_234_567, unaccounted=2)
    line.unaccounted_at = [7, 9]
    console = printed()
    print_audit(console, TopicAudit("orders", [line]))
    said = text(console)
    assert "…" not in said
    assert "81,234,567" in said
    assert "orders-3 orders.handlers.charge: unaccounted for: 2, from 7, 9" in said


def test_an_audit_names_the_first_forgotten_offsets_to_which_a_reset_goes_back():
    line = AuditLine("charge", 3, 0, 90, 90, 0, forgotten=53, forgotten_at=[4, 5])
    console = printed(400)
    print_audit(console, TopicAudit("orders", [line]))
    assert "orders-3 charge: forgotten: 53, from 4, 5: handed off" in text(console)


def test_a_reset_names_the_first_of_each_kind_of_missing_offsets_that_it_lets_go():
    line = AuditLine("charge", 3, 0, 60, 60, 0, forgotten=50, forgotten_at=[4, 5], unaccounted=2, unaccounted_at=[7, 9])
    assert describe_released("orders", line).startswith(
        "orders-3 charge: lets go 52 missing offsets below 60 (forgotten: 50, from 4, 5; unaccounted for: 2, from 7, 9)"
    )
    line.evicted = 3
    assert "lets go 55 missing offsets below 60" in describe_released("orders", line)
    assert "; evicted: 3): they do not run" in describe_released("orders", line)


def test_an_audit_says_of_a_recreated_or_truncated_log_from_which_offset_on_it_is_another():
    made, back = (LogChange(0, what, 7, 9, 0, "2026-11-21") for what in ("made anew", "went back"))
    console = printed(400)
    print_audit(console, TopicAudit("orders", [], log_changes=[made, back]))
    assert "orders-0: the log was recreated, at 2026-11-21: other records are there from offset 7 on\n" in text(console)
    assert "orders-0: the log was truncated, at 2026-11-21: other records are there from offset 7 on\n" in text(console)


def test_each_problem_ends_with_its_identifier_the_heading_of_its_runbook():
    console = printed(400)
    status = {"group": "bridge", "problems": ["It fails."], "problem_values": [{"id": "handler_failing"}]}
    print_status(console, {**status, "topics": {}, "bridges": {}, "workers": {}, **NOTHING})
    assert "! It fails. (handler_failing)\n" in text(console)


def test_what_an_error_says_in_brackets_is_printed():
    state = {"assigned": [], "paused": {}, "obstacles": ["Kafka: [thrd:main]: refused"]}
    console = printed()
    status = {"group": "bridge", "problems": ["[a] is wrong"], "topics": {}, "bridges": {"host:1": state}}
    print_status(console, {**status, "workers": {}, **NOTHING})
    assert "[a] is wrong" in text(console)
    assert "Kafka: [thrd:main]: refused" in text(console)


def test_the_size_of_batches_in_use_is_shown_with_its_reason():
    batches = {"charge": {"size": 50, "why": "so many take 0.2 s"}, "notify": {"size": 1, "why": "given as batch="}}
    state = {"assigned": [], "paused": {}, "obstacles": [], "batches": batches}
    console = printed()
    status = {"group": "bridge", "problems": [], "topics": {}, "bridges": {"host:1": state}, "workers": {}}
    print_status(console, {**status, **NOTHING})
    assert "charge: batches of 50: so many take 0.2 s\n  notify: batches of 1: given" in text(console)


def test_a_changed_policy_is_told_in_one_sentence_with_who_changed_it_and_what_it_is_now():
    console = printed(400)
    policies = {"charge": "changed by ann at 2026-11-26T10:00:00+00:00: max_retries=4"}
    status = {"group": "bridge", "problems": [], "topics": {}, "bridges": {}, "workers": {}}
    print_status(console, {**status, **NOTHING, "policies": policies})
    said = "the policy of charge was changed by ann at 2026-11-26T10:00:00+00:00: max_retries=4\n"
    assert said in text(console)


def found(**delivery: Any) -> list[dict[str, Any]]:
    record = {"topic": "orders", "partition": 0, "offset": 1, "timestamp": None, "key": None}
    known: dict[str, Any] = {
        "handler": "h",
        "fate": "handed",
        "since": None,
        "where": None,
        "attempts": {},
        "last_error": None,
        "task": None,
        "policy": None,
    }
    return [{"record": record, "halted": None, "deliveries": [{**known, **delivery}]}]


def test_a_long_error_is_cut_for_people():
    shown = list(format_result(found(last_error="x" * 5_000_000)))
    assert max(map(len, shown)) <= SHOWN_ERROR + 4


def test_when_something_was_handed_off_is_not_before_it_was_produced_and_said_as_about():
    assert estimate_handoff_time(100.0, None) == 100.0
    assert estimate_handoff_time(100.0, 90.0) == 100.0
    assert estimate_handoff_time(100.0, 104.5) == 104.5
    assert estimate_handoff_time(100.0, 5_000.0) == 110.0
    assert "handed since about 2026" in list(format_result(found(since="2026-01-31T12:00:05+00:00")))[1]
    assert "dead since 2026" in list(format_result(found(fate="dead", since="2026-01-31T12:00:05.123+00:00")))[1]


def test_no_text_of_others_colours_a_terminal_or_makes_a_line_of_its_own():
    evil = "no\n! all is well\x1b[31m\x1b]0;title\x07\u202e"
    console = printed()
    status: dict[str, Any] = {"group": evil, "problems": [evil], "topics": {}, "bridges": {}, "workers": {}}
    print_status(console, {**status, **NOTHING})
    print_audit(
        console, TopicAudit("orders", [AuditLine(evil, 0, 0, 1, 1, 0)], [DeathSummary(evil, evil, 1, evil, "", "")])
    )
    for character in ("\x1b", "\x07", "\u202e", "\n! all"):
        assert character not in text(console)
    assert r"! no\n! all is well\x1b[31m" in text(console)
    record = {"topic": "orders", "partition": 0, "offset": 1, "timestamp": None, "key": evil}
    delivery: dict[str, Any] = {
        "handler": evil,
        "fate": "dead",
        "since": None,
        "where": evil,
        "attempts": {},
        "last_error": evil,
        "task": evil,
        "policy": evil,
    }
    halted = {"why": evil, "by": evil, "since": evil}
    shown = list(format_result([{"record": record, "halted": halted, "deliveries": [delivery]}]))
    assert len(shown) == 6
    assert all(line.isprintable() for line in shown)
