"""The page that is read at night names what there is."""

import re
from pathlib import Path

from bridge.metrics import BridgeMetrics
from tasks import metrics as worker_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def test_each_metric_of_the_page_and_its_alerts_is_one_that_is_shown():
    named = set(re.findall(r"\b(?:bridge|worker)_[a-z_]+\b", PAGE)) - {"worker_soft_shutdown_timeout"}
    named = {name for name in named if not name.startswith(("worker_log", "bridge_group"))}
    shown = {family.name for family in BridgeMetrics().registry.collect()}
    shown |= {metric._name for metric in worker_metrics._made()}
    assert named
    assert {name.removesuffix("_total") for name in named} <= shown


def test_each_metric_of_the_bridge_is_on_the_page():
    for family in BridgeMetrics().registry.collect():
        assert family.name in PAGE


def test_the_alert_of_a_queue_without_workers_sees_what_waits_for_its_retry():
    (rule,) = re.findall(r"alert: NobodyConsumesAQueue\n +expr: (.+)", PAGE)
    assert "bridge_queue_retries" in rule


def test_what_waits_for_its_need_or_is_late_wakes_somebody():
    assert "bridge_breaker_open) > 0" in PAGE
    assert re.search(r"alert: WhatIsParkedIsOverdue\n +expr: .*bridge_parked_late_seconds.*bridge_halted", PAGE)
