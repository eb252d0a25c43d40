"""The dashboards in `deploy/dashboards` are written from the metrics and the problems, and show all of them."""

import json
import re
from typing import Any, Final

import pytest

from bridge.problems.problem_table import PROBLEM_TABLE
from tests.dashboards import DASHBOARDS, FOLDER, METRICS, Dashboard, Panel, dashboard_files, find_metrics, find_problems

PANELS: Final = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]
#: Labels that Prometheus adds, that of a histogram's buckets, and those of its own series of alerts.
ADDED: Final = {"instance", "job", "le", "alertname", "alertstate", "problem"}


def test_the_files_are_what_the_generator_writes():
    files = dashboard_files()
    assert sorted(FOLDER.iterdir()) == sorted(files)
    assert [file.name for file, text in files.items() if file.read_text() != text] == [], "run `make reference`"


def test_every_query_names_metrics_and_labels_that_there_are():
    wrong = [
        (panel.title, name)
        for panel in PANELS
        for query in panel.queries.values()
        for name in find_unknown(query, {*find_metrics(query)})
    ]
    assert wrong == []


def find_unknown(query: str, metrics: set[str]) -> set[str]:
    """Return the metrics of a query that no page has, and the labels that none of its metrics has."""
    labels = {label for metric in metrics & METRICS.keys() for label in METRICS[metric].labels} | ADDED
    bare = re.sub(r'"[^"]*"', '""', query)
    named = {name for group in re.findall(r"\bby \(([^)]*)\)", bare) for name in group.split(", ")}
    named |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"\"", bare))
    return (metrics - METRICS.keys()) | (named - labels)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_every_legend_shows_labels_that_the_query_keeps(dashboard: Dashboard):
    lost = [
        (panel.title, label)
        for panel in dashboard.panels
        for legend, query in panel.queries.items()
        for label in re.findall(r"{{(\w+)}}", legend)
        if not re.search(rf"by \([^)]*\b{label}\b", query) and label not in ADDED
    ]
    assert lost == []


def test_every_metric_is_on_a_dashboard():
    shown = {metric for panel in PANELS for query in panel.queries.values() for metric in find_metrics(query)}
    assert sorted(METRICS.keys() - shown) == []


def test_every_problem_that_an_alert_tells_of_has_a_panel_that_links_its_runbook():
    linked = {problem for panel in PANELS for problem in find_problems(panel)}
    assert {row.identifier for row in PROBLEM_TABLE if row.alerts} == linked


def test_a_panel_says_what_its_metrics_are_and_links_the_runbooks_of_its_alerts():
    topic: dict[str, Any] = json.loads((FOLDER / "topic.json").read_text())
    (lag,) = (panel for panel in topic["panels"] if panel["title"] == "Consumer lag")
    assert lag["description"].startswith("`bridge_lag_records`: consumer lag of source topics")
    assert "${runbooks}#consumer_lag" in [link["url"] for link in lag["links"]]


def test_no_panel_lies_on_another():
    for file in dashboard_files():
        places: list[dict[str, int]] = [panel["gridPos"] for panel in json.loads(file.read_text())["panels"]]
        cells = [
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(cells) == len({*cells})
        assert max(x for x, _ in cells) < 24


def test_a_query_for_a_metric_or_a_label_that_is_not_there_is_found():
    panel = Panel("", {"": 'sum by (nobody) (bridge_ready{where="x"}) + bridge_absent'})
    (query,) = panel.queries.values()
    assert find_unknown(query, {*find_metrics(query)}) == {"nobody", "where", "bridge_absent"}
