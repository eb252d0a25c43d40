"""What the bridge's metrics show, and that alerts on them see what happens first."""

import re

import pytest
from prometheus_client import Gauge

from bridge.bridge_metrics import BridgeMetrics
from bridge.deadletters.recorder.dead_letter_metrics import RecorderMetrics
from bridge.ledger.unaccounted_offsets import AuditLine
from bridge.problems.problem_table import PROBLEM_TABLE
from tasks.policy.failure_decision import REASONS
from tasks.worker import worker_metrics


def test_what_was_forgotten_with_the_ledger_is_unaccounted_for():
    metrics = BridgeMetrics()
    line = AuditLine("charge", 0, 0, 200, 200, 0, unaccounted=3, forgotten=120)
    metrics.show_fates(("orders", 0), line.handler, line.fates, line.missing)
    where = {"topic": "orders", "partition": "0", "handler": "charge"}
    assert metrics.registry.get_sample_value("bridge_unaccounted", where) == 123


def test_a_partition_that_is_given_up_has_no_series_and_no_search_through_those_of_others_finds_them(monkeypatch):
    metrics = BridgeMetrics()
    for place in (("orders", 1), ("orders", 11), ("mail", 1)):
        metrics.committed.labels(*place).set(5)
        metrics.lag.labels(*place).set(2)
        for handler in ("charge", "notify"):
            metrics.show_fates(place, handler, {"done": 5, "open": 2}, 0)
    monkeypatch.setattr(Gauge, "remove_by_labels", None)
    metrics.forget([("orders", 1), ("orders", 7)])
    shown = {
        (family.name, sample.labels["topic"], sample.labels["partition"])
        for family in metrics.registry.collect()
        for sample in family.samples
        if "partition" in sample.labels
    }
    gauges = ("bridge_committed_offset", "bridge_lag_records", "bridge_fates", "bridge_unaccounted")
    assert shown == {(name, *place) for name in gauges for place in (("orders", "11"), ("mail", "1"))}


def test_pauses_are_shown_since_when_and_only_the_changed_ones_are_made_anew(monkeypatch):
    metrics = BridgeMetrics()
    value = metrics.registry.get_sample_value
    many = {("orders", number): "halted" for number in range(100)}
    metrics.show_paused(many)
    where = {"topic": "orders", "partition": "7", "reason": "halted"}
    since = value("bridge_partition_paused_since_seconds", where)
    monkeypatch.setattr(Gauge, "clear", None)
    made = []
    labels = Gauge.labels

    def count(gauge, *values):
        made.append(values)
        return labels(gauge, *values)

    monkeypatch.setattr(Gauge, "labels", count)
    metrics.show_paused({**many, ("orders", 8): "the window is full", ("mail", 0): "halted"} | {("orders", 9): "x"})
    assert len(made) == 2 * 3
    assert value("bridge_partition_paused_since_seconds", where) == since
    assert value("bridge_partition_paused", {**where, "partition": "8"}) is None
    assert value("bridge_partition_paused", {**where, "partition": "8", "reason": "the window is full"}) == 1
    metrics.show_paused({})
    assert value("bridge_partition_paused", where) is value("bridge_partition_paused_since_seconds", where) is None


def test_a_halt_says_since_when_until_it_is_over():
    metrics = BridgeMetrics()
    metrics.show_halted({}, ["orders", "mail"])
    metrics.show_halted({"orders": 1000.5})
    value = metrics.registry.get_sample_value
    assert value("bridge_halted", {"topic": "orders"}) == 1
    assert value("bridge_halted_since_seconds", {"topic": "orders"}) == 1000.5
    assert value("bridge_halted", {"topic": "mail"}) == 0
    assert value("bridge_halted_since_seconds", {"topic": "mail"}) is None
    metrics.show_halted({})
    assert value("bridge_halted", {"topic": "orders"}) == 0
    assert value("bridge_halted_since_seconds", {"topic": "orders"}) is None


def test_what_may_happen_to_a_partition_is_a_series_before_it_happens():
    metrics = BridgeMetrics()
    metrics.expect([("orders", 3)])
    where = {"topic": "orders", "partition": "3"}
    assert metrics.registry.get_sample_value("bridge_expired_records_total", where) == 0
    for what in ("made anew", "went back", "deleted"):
        assert metrics.registry.get_sample_value("bridge_log_changes_total", {**where, "what": what}) == 0


def test_every_counter_whose_increase_alerts_is_a_series_before_its_first_event():
    bridge, recorder = BridgeMetrics(), RecorderMetrics()
    bridge.expect([("orders", 3)])
    recorder.expect([("orders.dlq", 3)])
    worker_metrics.expect_handlers(["expected.work"], "shop")
    registries = (bridge.registry, recorder.registry, *worker_metrics._made())
    samples = [each for registry in registries for family in registry.collect() for each in family.samples]
    series = {each.name for each in samples if each.labels.get("handler", "expected.work") == "expected.work"}
    expressions = " ".join(alert.expression for row in PROBLEM_TABLE for alert in row.alerts)
    counters = set(re.findall(r"increase\((\w+)", expressions))
    # It compares traffic with that of the hour before: it needs no first event. The other is at 0 by its collector.
    counters -= {"bridge_records_consumed_total", "bridge_deadletters_replays_total"}
    assert len(counters) > 5
    assert counters - series == set()


def test_why_deliveries_of_a_handler_may_be_retried_or_die_is_a_series_before_they_do():
    worker_metrics.expect_handlers(["expected.work"], "shop")
    made = worker_metrics._made()
    for counter, reasons in ((made.retried, worker_metrics.RETRIED), (made.dead_lettered, REASONS)):
        (family,) = counter.collect()
        ours = [s for s in family.samples if s.labels["handler"] == "expected.work" and s.name.endswith("_total")]
        found = {s.labels["reason"]: s.value for s in ours}
        assert {reason: found.get(reason) for reason in reasons} == dict.fromkeys(reasons, 0)
    (family,) = made.handled.collect()
    ours = [s for s in family.samples if s.labels["handler"] == "expected.work" and s.name.endswith("_total")]
    assert {s.labels["outcome"]: s.value for s in ours} == {"done": 0, "failed": 0}


def test_runs_that_are_counted_together_count_as_if_each_were_counted_by_itself():
    took = [0.0, 0.0005, 0.001, 0.0011, 0.3, 5, 10_000]
    for seconds in took:
        worker_metrics.count_runs("one.by.one", "shop", "done", seconds)
    worker_metrics.count_runs("together", "shop", "done", *took)
    made = worker_metrics._made()
    for metric in (made.handled, made.duration):
        (family,) = metric.collect()
        one, together = (
            {
                (s.name, s.labels.get("le")): s.value
                for s in family.samples
                if s.labels["handler"] == name and not s.name.endswith("_created")
            }
            for name in ("one.by.one", "together")
        )
        assert one
        assert together == pytest.approx(one)


def test_fast_runs_of_a_task_are_counted_together_and_slow_ones_at_once(monkeypatch: pytest.MonkeyPatch):
    now, counted, told = [0.0], [], []
    monkeypatch.setattr(worker_metrics, "count_runs", lambda *what: counted.append(what))
    runs = worker_metrics.RunCounter(
        "work", "shop", lambda outcome, seconds: told.append((outcome, *seconds)), lambda: now[0]
    )
    for _ in range(3):
        now[0] += 0.03125
        runs.ended("done", 0.03125)
    assert counted == []
    now[0] += 1
    runs.ended("failed", 1.0)
    assert counted == [("work", "shop", "done", 0.03125, 0.03125, 0.03125), ("work", "shop", "failed", 1.0)]
    runs.flush()
    assert len(counted) == 2
    assert told == [("done", 0.03125, 0.03125, 0.03125), ("failed", 1.0)]
