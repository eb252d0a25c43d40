"""The writer of the Grafana dashboards in `deploy/dashboards`, one file each: `make reference`.

A panel is a title and its queries. Its description comes from `docs/reference/metrics.md`, its runbooks from the table
of problems: those whose alert reads one of the panel's metrics.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.problems.problem_table import PROBLEM_TABLE

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "deploy" / "dashboards"
RATE: Final = "[$__rate_interval]"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
#: Grafana's columns of a page, and the height of a panel in its rows.
COLUMNS: Final = 24
HEIGHT: Final = 8


class MetricFacts(NamedTuple):
    """A metric as its page has it: the name that Prometheus shows, its labels, and what it is."""

    name: str
    labels: tuple[str, ...]
    meaning: str


class Panel(NamedTuple):
    """A panel.

    Attributes:
        queries: by legend.
        kind: `timeseries`, `stat` (a number) or `table`.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


class Dashboard(NamedTuple):
    """A dashboard: its file, its title, the labels that a reader chooses from, and its panels."""

    name: str
    title: str
    choices: Mapping[str, str]
    panels: Sequence[Panel]


def read_metrics() -> dict[str, MetricFacts]:
    """Return the metrics of `docs/reference/metrics.md` by name; tests hold that page against the code."""
    found: dict[str, MetricFacts] = {}
    for line in (ROOT / "docs" / "reference" / "metrics.md").read_text().splitlines():
        if row := re.match(r"\| `((?:bridge|worker)_\w+)` \| ([\w, ]*)\| (.+) \|$", line):
            labels = tuple(label.strip() for label in row[2].split(",") if label.strip())
            found[row[1]] = MetricFacts(row[1], labels, re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", row[3]))
    return found


METRICS: Final = read_metrics()


def find_metrics(query: str) -> list[str]:
    """Return the metrics that a query names; a histogram by its own name."""
    named = dict.fromkeys(re.findall(r"\b(?:bridge|worker)_\w+", re.sub(r'"[^"]*"', '""', query)))
    return [re.sub(r"_(?:bucket|sum|count)$", "", name) if name not in METRICS else name for name in named]


def _rate(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{where}{RATE}))"


def _quantiles(metric: str, where: str = "", by: str = "") -> dict[str, str]:
    beside, legend = (f", {by}", f"{{{{{by}}}}} ") if by else ("", "")
    return {
        f"{legend}{share:.0%}": f"histogram_quantile({share}, sum by (le{beside}) (rate({metric}_bucket{where}{RATE})))"
        for share in (0.5, 0.99)
    }


def _number(title: str, query: str, unit: str = "short") -> Panel:
    return Panel(title, {title: query}, unit, "stat", 4)


_TOPIC: Final = '{topic=~"$topic"}'
#: Retry and replay topics of the source too.
_DERIVED: Final = '{topic=~"($topic)([.].+)?"}'
_HANDLER: Final = '{handler=~"$handler"}'

OVERVIEW: Final = Dashboard(
    "overview",
    "Overview",
    {},
    (
        _number("Bridges that consume", "sum(bridge_ready)"),
        _number("Workers", "sum(max by (queue) (bridge_workers))"),
        _number("Consumer lag", "sum(bridge_lag_records)"),
        _number("Backlog of one process", "sum(max by (queue, state) (bridge_backlog_seconds))", "s"),
        _number("Open dead letters", "sum(max by (handler, reason) (bridge_deadletters_open))"),
        _number("Unaccounted records", "sum(bridge_unaccounted)"),
        Panel("Alerts that fire", {"": 'ALERTS{alertstate="firing",problem!=""}'}, kind="table", width=16),
        Panel("Problems that bridges see", {"{{problem}}": "max by (problem) (bridge_problems)"}),
        Panel("Records read", {"{{topic}}": _rate("bridge_records_consumed_total", "topic")}, "ops"),
        Panel("Deliveries handed off", {"{{handler}}": _rate("bridge_deliveries_handed_off_total", "handler")}, "ops"),
        Panel("Runs", {"{{handler}} {{outcome}}": _rate("worker_handled_total", "handler, outcome")}, "ops"),
        Panel("Lag by topic", {"{{topic}}": "sum by (topic) (bridge_lag_records)"}),
        Panel("Workers by queue", {"{{queue}}": "max by (queue) (bridge_workers)"}),
        Panel("Bridges", {"{{instance}}": "bridge_ready"}),
        Panel("Open circuit breakers", {"{{dependency}}": "max by (dependency) (bridge_breaker_open)"}),
        Panel("Halted topics", {"{{topic}}": "max by (topic) (bridge_halted)"}),
        Panel(
            "Dead letters", {"{{handler}} {{reason}}": _rate("worker_dead_lettered_total", "handler, reason")}, "ops"
        ),
    ),
)

TOPIC: Final = Dashboard(
    "topic",
    "Topic",
    {"topic": "label_values(bridge_lag_records, topic)"},
    (
        Panel("Records read", {"{{topic}}": _rate("bridge_records_consumed_total", "topic", _DERIVED)}, "ops"),
        Panel("Consumer lag", {"{{topic}}": f"sum by (topic) (bridge_lag_records{_TOPIC})"}),
        Panel(
            "Offsets committed",
            {"{{topic}}": f"sum by (topic) (rate(bridge_committed_offset{_DERIVED}{RATE}))"},
            "ops",
        ),
        Panel(
            "Deliveries handed off",
            {"{{handler}}": _rate("bridge_deliveries_handed_off_total", "handler", _DERIVED)},
            "ops",
        ),
        Panel(
            "Oldest delivery in flight",
            {"{{topic}} {{handler}}": f"max by (topic, handler) (bridge_oldest_delivery_seconds{_DERIVED})"},
            "s",
        ),
        Panel(
            "Paused partitions",
            {"{{topic}}: {{reason}}": f"sum by (topic, reason) (bridge_partition_paused{_DERIVED})"},
        ),
        Panel(
            "Paused for",
            {
                "{{topic}}: {{reason}}": (
                    f"time() - min by (topic, reason) (bridge_partition_paused_since_seconds{_DERIVED})"
                )
            },
            "s",
        ),
        Panel("Halted", {"{{topic}}": f"max by (topic) (bridge_halted{_TOPIC})"}),
        Panel("Halted for", {"{{topic}}": f"time() - min by (topic) (bridge_halted_since_seconds{_TOPIC})"}, "s"),
        Panel("Parked records", {"{{tier}}": f"sum by (topic, tier) (bridge_parked_records{_TOPIC})"}),
        Panel("Parked and overdue", {"{{tier}}": f"max by (topic, tier) (bridge_parked_late_seconds{_TOPIC})"}, "s"),
        Panel("Fates", {"{{fate}}": f"sum by (fate) (bridge_fates{_TOPIC})"}),
        Panel("Unaccounted records", {"{{handler}}": f"sum by (topic, handler) (bridge_unaccounted{_TOPIC})"}),
        Panel(
            "Records that retention deleted",
            {"{{topic}}": f"sum by (topic) (increase(bridge_expired_records_total{_DERIVED}{RATE}))"},
        ),
        Panel(
            "Changed logs",
            {"{{topic}} {{what}}": f"sum by (topic, what) (increase(bridge_log_changes_total{_DERIVED}{RATE}))"},
        ),
        Panel(
            "Strange records",
            {"{{topic}}": f"sum by (topic) (increase(bridge_strange_records_total{_DERIVED}{RATE}))"},
        ),
    ),
)

HANDLER: Final = Dashboard(
    "handler",
    "Handler",
    {"handler": "label_values(bridge_batch_size, handler)"},
    (
        Panel("Runs", {"{{handler}} {{outcome}}": _rate("worker_handled_total", "handler, outcome", _HANDLER)}, "ops"),
        Panel("Duration of a run", _quantiles("worker_handler_duration_seconds", _HANDLER, "handler"), "s"),
        Panel(
            "Time spent",
            {"{{handler}}": f"sum by (handler) (rate(worker_handler_duration_seconds_sum{_HANDLER}{RATE}))"},
            "s",
        ),
        Panel("Retries", {"{{handler}} {{reason}}": _rate("worker_retried_total", "handler, reason", _HANDLER)}, "ops"),
        Panel("Parked", {"{{handler}} {{tier}}": _rate("worker_parked_total", "handler, tier", _HANDLER)}, "ops"),
        Panel(
            "Dead letters",
            {"{{handler}} {{reason}}": _rate("worker_dead_lettered_total", "handler, reason", _HANDLER)},
            "ops",
        ),
        Panel(
            "Lost processes",
            {"{{handler}}": f"sum by (handler) (increase(worker_lost_processes_total{_HANDLER}{RATE}))"},
        ),
        Panel(
            "Not run again",
            {
                "{{handler}} settled": _rate("worker_skipped_total", "handler", _HANDLER),
                "{{handler}} duplicate": _rate("worker_duplicates_total", "handler", _HANDLER),
            },
            "ops",
        ),
        Panel(
            "Oldest delivery in flight",
            {"{{handler}}": f"max by (handler) (bridge_oldest_delivery_seconds{_HANDLER})"},
            "s",
        ),
        Panel("Deliveries a message", {"{{handler}}": f"min by (handler) (bridge_batch_size{_HANDLER})"}),
        Panel(
            "Halted",
            {
                "{{handler}} on {{topic}}": f"max by (topic, handler) (bridge_handler_halted{_HANDLER})",
                "{{handler}} on {{topic}}: keys": f"max by (topic, handler) (bridge_keys_halted{_HANDLER})",
            },
        ),
        Panel("Messages behind a halt", {"{{handler}}": f"max by (topic, handler) (bridge_held_messages{_HANDLER})"}),
        Panel(
            "Order held by dead letters",
            {
                "{{handler}} dead": f"sum by (topic, handler) (bridge_dead_holds{_HANDLER})",
                "{{handler}} waiting": f"sum by (topic, handler) (bridge_dead_holds_waiting{_HANDLER})",
            },
        ),
        Panel("Changed policy", {"{{handler}}": f"max by (handler) (bridge_policy_changed{_HANDLER})"}),
        Panel(
            "Limits: deliveries",
            {
                "{{limit}} run": "max by (limit) (bridge_limit_running)",
                "{{limit}} wait": "max by (limit) (bridge_limit_waiting)",
            },
        ),
        Panel("Limits: wait", {"{{limit}}": "max by (limit) (bridge_limit_wait_seconds)"}, "s"),
    ),
)

DEAD_LETTERS: Final = Dashboard(
    "dead-letters",
    "Dead letters",
    {},
    (
        _number("Open", "sum(max by (handler, reason) (bridge_deadletters_open))"),
        _number("Oldest open", "max(bridge_deadletters_oldest_open_seconds)", "s"),
        _number("Recorders that record", "sum(bridge_deadletters_recorder_ready)"),
        _number("Not recorded yet", "sum(bridge_deadletters_lag_records)"),
        Panel("Open by handler", {"{{handler}} {{reason}}": "max by (handler, reason) (bridge_deadletters_open)"}),
        Panel("Growing failure groups", {"{{handler}}": "max by (handler) (bridge_deadletters_growing_groups)"}),
        Panel(
            "Written by workers",
            {"{{handler}} {{reason}}": _rate("worker_dead_lettered_total", "handler, reason")},
            "ops",
        ),
        Panel(
            "Not taken by Kafka",
            {"{{handler}}": _rate("worker_retried_total", "handler", '{reason="dead_letter_unpublished"}')},
            "ops",
        ),
        Panel("Recorded", {"{{topic}} {{what}}": _rate("bridge_deadletters_recorded_total", "topic, what")}, "ops"),
        Panel("Lag of the recorders", {"{{topic}}": "sum by (topic) (bridge_deadletters_lag_records)"}),
        Panel("Missed", {"{{topic}}": f"sum by (topic) (increase(bridge_deadletters_missed_total{RATE}))"}),
        Panel("Errors of the database", {"errors": f"sum(increase(bridge_deadletters_database_errors_total{RATE}))"}),
        Panel(
            "Ended replays",
            {"{{outcome}}": f"max by (outcome) (increase(bridge_deadletters_replays_total{RATE}))"},
        ),
        Panel("Plans that await a second person", {"plans": "max(bridge_deadletters_plans_awaiting)"}),
        Panel(
            "Webhooks: messages of a week",
            {"{{webhook}} {{state}}": "max by (webhook, state) (bridge_deadletters_webhook_deliveries)"},
        ),
        Panel(
            "Webhooks: oldest message that waits",
            {"{{webhook}}": "max by (webhook) (bridge_deadletters_webhook_oldest_waiting_seconds)"},
            "s",
        ),
    ),
)

LEDGER_AND_TRANSPORT: Final = Dashboard(
    "ledger-and-transport",
    "Ledger and transport",
    {"queue": "label_values(bridge_workers, queue)"},
    (
        Panel("Messages", {"{{queue}}": 'max by (queue) (bridge_queue_messages{queue=~"$queue"})'}),
        Panel(
            "Messages that wait for their time", {"{{queue}}": 'max by (queue) (bridge_queue_retries{queue=~"$queue"})'}
        ),
        Panel("Workers", {"{{queue}}": 'max by (queue) (bridge_workers{queue=~"$queue"})'}),
        Panel(
            "Backlog",
            {"{{queue}} {{state}}": 'max by (queue, state) (bridge_backlog_deliveries{queue=~"$queue"})'},
        ),
        Panel(
            "Backlog of one process",
            {"{{queue}} {{state}}": 'max by (queue, state) (bridge_backlog_seconds{queue=~"$queue"})'},
            "s",
        ),
        Panel("Hand-off", _quantiles("bridge_handoff_seconds"), "s"),
        Panel("Failed hand-offs", {"{{instance}}": _rate("bridge_handoff_failures_total", "instance")}, "ops"),
        Panel("Fates", {"{{fate}}": "sum by (fate) (bridge_fates)"}),
        Panel("Unaccounted records", {"{{topic}} {{handler}}": "sum by (topic, handler) (bridge_unaccounted)"}),
        Panel(
            "Finished deliveries that run again", {"deliveries": f"sum(increase(bridge_undone_deliveries_total{RATE}))"}
        ),
        Panel("Lost tasks, handed off again", {"deliveries": f"sum(increase(bridge_stuck_deliveries_total{RATE}))"}),
        Panel(
            "Processes without files", {"{{instance}} {{what}}": "sum by (instance, what) (worker_unseen_processes)"}
        ),
    ),
)

DASHBOARDS: Final = (OVERVIEW, TOPIC, HANDLER, DEAD_LETTERS, LEDGER_AND_TRANSPORT)


def find_problems(panel: Panel) -> list[str]:
    """Return the problems of which an alert reads a metric of the panel."""
    shown = {metric for query in panel.queries.values() for metric in find_metrics(query)}
    return [
        row.identifier
        for row in PROBLEM_TABLE
        if any(shown.intersection(find_metrics(alert.expression)) for alert in row.alerts)
    ]


def write_dashboard(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana imports it."""
    choices = [_choice(name, query) for name, query in dashboard.choices.items()]
    written = {
        "uid": f"ckb-{dashboard.name}",
        "title": f"celery-kafka-bridge: {dashboard.title}",
        "tags": ["celery-kafka-bridge"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Dashboards",
                "tags": ["celery-kafka-bridge"],
                "keepTime": True,
                "asDropdown": True,
            }
        ],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                # The page of the runbooks in your copy of the repository.
                {"name": "runbooks", "type": "textbox", "query": "docs/runbooks/problems.md", "label": "Runbooks"},
                *choices,
            ]
        },
        "panels": list(_panels(dashboard.panels)),
    }
    return json.dumps(written, indent=1, ensure_ascii=False) + "\n"


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = below = 0
    for number, panel in enumerate(panels, 1):
        height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        if x + panel.width > COLUMNS or (x and height != below - y):
            x, y = 0, below
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height})
        x, below = x + panel.width, y + height


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    metrics = dict.fromkeys(metric for query in panel.queries.values() for metric in find_metrics(query))
    instant = {"format": "table", "instant": True} if panel.kind == "table" else {}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "table":
        defaults = {"links": [_runbook("${__data.fields.problem}")]}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": "\n\n".join(f"`{name}`: {METRICS[name].meaning}." for name in metrics),
        "datasource": DATASOURCE,
        "gridPos": place,
        "links": [_runbook(problem) for problem in find_problems(panel)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": DATASOURCE, "expr": query, "legendFormat": legend, **instant}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _runbook(problem: str) -> dict[str, Any]:
    return {"title": f"Runbook: {problem}", "url": f"${{runbooks}}#{problem}", "targetBlank": True}


def dashboard_files() -> dict[Path, str]:
    """Return each file of `deploy/dashboards` with its text."""
    return {FOLDER / f"{dashboard.name}.json": write_dashboard(dashboard) for dashboard in DASHBOARDS}
