"""The pages that are read at night name what there is."""

import re
from pathlib import Path

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.deadletters.recorder.dead_letter_metrics import RecorderMetrics
from bridge.formats.pause_reasons import PauseReason
from bridge.problems.alert_rule_writer import write_alert_rules
from bridge.problems.problem_table import PROBLEM_TABLE, runbook_entry
from tasks.worker import worker_metrics
from tests.reference_pages import pause_tables

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "deploy" / "alerts.yml").read_text()
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()
PAGES = [*(ROOT / "docs" / "runbooks").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
PAGE = METRICS + RULES
ALERTS = {alert.name: alert for row in PROBLEM_TABLE for alert in row.alerts}
#: Names that begin like a metric: settings, a table, identifiers.
NO_METRICS = {
    *("worker_soft_shutdown_timeout", "worker_log_format", "worker_prefetch_multiplier"),
    *("bridge_settled", "bridge_outbox", "bridge_group"),
}


#: What a recorder shows: what it measures, and what it reads off the desk.
DESK = {family.name for family in RecorderMetrics().registry.collect()} | {
    *("bridge_deadletters_open", "bridge_deadletters_oldest_open_seconds"),
    *("bridge_deadletters_webhook_deliveries", "bridge_deadletters_webhook_oldest_waiting_seconds"),
    *("bridge_deadletters_growing_groups", "bridge_deadletters_replays", "bridge_deadletters_plans_awaiting"),
}


def test_the_rules_and_the_runbook_are_those_of_the_table():
    assert write_alert_rules() == RULES, "run `make reference`"
    page = (ROOT / "docs" / "runbooks" / "problems.md").read_text()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [row.identifier for row in PROBLEM_TABLE]
    begins = [runbook_entry(row) + "- **At risk:** " for row in PROBLEM_TABLE]
    assert [begin for begin in begins if begin not in page] == []


def test_each_kind_of_problem_has_one_row_and_each_row_and_rule_a_name_of_its_own():
    names = [row.identifier for row in PROBLEM_TABLE]
    kinds = [row.kind for row in PROBLEM_TABLE]
    rules = [alert.name for row in PROBLEM_TABLE for alert in row.alerts]
    assert len({*names}) == len(names)
    assert len({*kinds}) == len(kinds)
    assert len({*rules}) == len(rules)


def test_each_row_says_when_its_problem_is_said():
    unsaid = [row.identifier for row in PROBLEM_TABLE if not re.search(r"\d (s|minutes?)\b|third", row.said)]
    assert unsaid == []


def test_each_problem_has_an_alert_or_says_why_not():
    assert [row.identifier for row in PROBLEM_TABLE if bool(row.alerts) == bool(row.unalerted)] == []
    named = [name for row in PROBLEM_TABLE for name in re.findall(r"`([A-Z]\w+)` fires", row.unalerted)]
    assert [name for name in named if name not in ALERTS] == []


def test_each_metric_of_the_pages_and_the_alerts_is_one_that_is_shown():
    text = PAGE + "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\b(?:bridge|worker)_[a-z_]+\b", text)) - NO_METRICS
    named -= {row.identifier for row in PROBLEM_TABLE}
    shown = {family.name for family in BridgeMetrics().registry.collect()}
    shown |= {metric._name for metric in worker_metrics._made()} | {worker_metrics.UNSEEN_PROCESSES} | DESK
    assert named
    assert {name.removesuffix("_total") for name in named} <= shown


def test_each_metric_of_the_desk_is_on_the_page():
    assert [name for name in DESK if name not in PAGE] == []


def test_what_needs_a_person_at_the_desk_wakes_somebody():
    assert "growing_groups) > 0" in ALERTS["DeadLettersGrow"].expression
    assert "oldest_open_seconds" in ALERTS["DeadLettersAreLeft"].expression
    assert "absent" in ALERTS["NobodyRecordsDeadLetters"].expression
    assert "lag_records" in ALERTS["TheRecorderIsBehind"].expression
    assert "missed_total" in ALERTS["DeadLettersWereMissed"].expression


def test_the_alert_of_a_queue_without_workers_sees_what_waits_for_its_retry():
    assert "bridge_queue_retries" in ALERTS["NobodyConsumesAQueue"].expression


def test_what_waits_for_its_need_or_is_late_wakes_somebody():
    assert "bridge_breaker_open) > 0" in PAGE
    rule = ALERTS["WhatIsParkedIsOverdue"].expression
    assert re.search("bridge_parked_late_seconds.* unless .*bridge_halted", rule)
    # Its others go on, and of its own records none is late.
    assert "bridge_handler_halted" not in rule


@pytest.mark.parametrize("alert", ["DeliveriesTakeTooLong", "PausedForLong"])
def test_what_is_halted_or_waits_for_its_need_wakes_nobody_as_slow(alert: str):
    rule = ALERTS[alert].expression
    assert "unless on () max(bridge_breaker_open) > 0" in rule
    assert "halted" in rule


@pytest.mark.parametrize(
    ("topic", "source"), [("orders", "orders"), ("orders.retry.5m", "orders"), ("my.orders.replay", "my.orders")]
)
def test_the_alert_of_slow_deliveries_reads_the_source_out_of_our_names(topic: str, source: str):
    (pattern,) = re.findall(r'"source", "\$1", "topic", "(\(.+[?].*)"\) > 900', PAGE)
    found = re.fullmatch(pattern, topic)
    assert found is not None
    assert found[1] == source


@pytest.mark.parametrize(("page", "table"), pause_tables().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_tables_of_the_reasons_of_a_pause_are_those_of_the_code(page: Path, table: str):
    assert table + "\n" in page.read_text(), "run `make reference`"


@pytest.mark.parametrize("reason", PauseReason)
def test_each_reason_of_a_pause_has_advice_and_names_problems_that_there_are(reason: PauseReason):
    identifiers = {row.identifier for row in PROBLEM_TABLE}
    assert all((reason.means, reason.ends, reason.advice))
    assert {*re.findall(r"\((\w+)\)", reason.advice)} <= identifiers
    assert reason.told_by in {*identifiers, ""}


@pytest.mark.parametrize("reason", PauseReason)
def test_what_is_paused_by_a_decision_or_for_its_time_wakes_nobody(reason: PauseReason):
    (told,) = re.findall(r'paused_since_seconds\{reason!~"([^"]+)"', PAGE)
    expected = reason in {
        PauseReason.HALTED,
        PauseReason.DEPENDENCIES_DOWN,
        PauseReason.SOME_DEPENDENCIES_DOWN,
        PauseReason.SOME_HALTED,
        PauseReason.LIMIT_FULL,
        PauseReason.NOT_DUE,
    }
    assert bool(re.fullmatch(told, f"{reason} orders" if reason.names else reason)) == expected
