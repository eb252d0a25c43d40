"""Each alert fires in its incident, and is silent where all is well: promtool runs the rules of `deploy/alerts.yml`."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.problems.problem_table import PROBLEM_TABLE

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "alerts.yml"

#: By alert: the series of its incident, and those of a minute in which all is well. In promtool's notation, a sample
#: each 30 s: `0+30x40` grows by 30 each time, `1x40` stays, `_` is a series that is not there.
Series = dict[str, str]
INCIDENTS: Final[dict[str, tuple[Series, Series]]] = {
    "NoBridgeRuns": ({}, {'bridge_ready{instance="a"}': "0x40"}),
    # Another group's bridges, or its recorder, do not stand in for those of this one.
    "NoBridgeConsumes": (
        {'bridge_ready{job="orders",instance="a"}': "0x40", 'bridge_ready{job="mails",instance="b"}': "1x40"},
        {'bridge_ready{job="orders",instance="a"}': "0x40", 'bridge_ready{job="orders",instance="b"}': "1x40"},
    ),
    "ATopicIsHalted": ({'bridge_halted{topic="t"}': "1x40"}, {'bridge_halted{topic="t"}': "0x40"}),
    "AHandlerIsHalted": (
        {
            'bridge_handler_halted{topic="t",handler="h"}': "0x40",
            'bridge_keys_halted{topic="t",handler="h"}': "2x40",
        },
        {
            'bridge_handler_halted{topic="t",handler="h"}': "0x40",
            'bridge_keys_halted{topic="t",handler="h"}': "0x40",
        },
    ),
    "WhatHandlersNeedIsDown": (
        {'bridge_breaker_open{dependency="bank"}': "1x40"},
        {'bridge_breaker_open{dependency="bank"}': "0x40"},
    ),
    "ABridgeIsNotReady": (
        {'bridge_ready{instance="a"}': "0x40", 'bridge_ready{instance="b"}': "1x40"},
        {'bridge_ready{instance="a"}': "1x40"},
    ),
    "NobodyConsumesAQueue": (
        {
            'bridge_workers{queue="q"}': "0x40",
            'bridge_queue_messages{queue="q"}': "0x40",
            'bridge_queue_retries{queue="q"}': "9x40",
        },
        {
            'bridge_workers{queue="q"}': "0x40",
            'bridge_queue_messages{queue="q"}': "0x40",
            'bridge_queue_retries{queue="q"}': "0x40",
        },
    ),
    "DeliveriesTakeTooLong": (
        {
            'bridge_oldest_delivery_seconds{topic="t",handler="h"}': "1000x40",
            'bridge_breaker_open{dependency="x"}': "0x40",
        },
        {
            'bridge_oldest_delivery_seconds{topic="t.retry.5m",handler="h"}': "1000x40",
            'bridge_halted{topic="t"}': "1x40",
        },
    ),
    "RecordsAreUnaccountedFor": (
        {'bridge_unaccounted{topic="t",partition="0",handler="h"}': "7x40"},
        {'bridge_unaccounted{topic="t",partition="0",handler="h"}': "0x40"},
    ),
    "TheLedgerLostFates": (
        {"bridge_undone_deliveries_total": "0x20 5x20"},
        {"bridge_undone_deliveries_total": "5x40"},
    ),
    "DeliveriesWereNowhere": (
        {"bridge_stuck_deliveries_total": "0x20 5x20"},
        {"bridge_stuck_deliveries_total": "5x40"},
    ),
    "RetentionTookWhatWasNotHandled": (
        {'bridge_expired_records_total{topic="t"}': "0x20 60x20"},
        {'bridge_expired_records_total{topic="t"}': "0x40"},
    ),
    "ALogIsAnother": (
        {'bridge_log_changes_total{topic="t",what="went back"}': "0x20 1x20"},
        {'bridge_log_changes_total{topic="t",what="went back"}': "0x40"},
    ),
    "DeadLettersHoldTheirKeys": (
        {'bridge_dead_holds{topic="t",handler="h"}': "1x40"},
        {'bridge_dead_holds{topic="t",handler="h"}': "0x40"},
    ),
    "WhatIsParkedIsOverdue": (
        {'bridge_parked_late_seconds{topic="t",tier="t.retry.5m"}': "90x40"},
        {'bridge_parked_late_seconds{topic="t",tier="t.retry.5m"}': "90x40", 'bridge_halted{topic="t"}': "1x40"},
    ),
    "TooManyDie": (
        {'bridge_partition_paused{topic="t",partition="0",reason="dead letters of t"}': "1x40"},
        {'bridge_partition_paused{topic="t",partition="0",reason="halted"}': "1x40"},
    ),
    "PausedForLong": (
        {'bridge_partition_paused_since_seconds{topic="t",reason="queue q"}': "-2000x40"},
        {'bridge_partition_paused_since_seconds{topic="t",reason="halted"}': "-2000x40"},
    ),
    "ConsumptionFallsBehind": (
        {'bridge_lag_records{topic="t",partition="0"}': "20000+600x80"},
        {'bridge_lag_records{topic="t",partition="0"}': "90000-600x80"},
    ),
    "TrafficStopped": (
        {
            'bridge_records_consumed_total{topic="t",partition="0"}': "0+60x60 3600x40",
            'bridge_lag_records{topic="t",partition="0"}': "0x100",
        },
        {
            'bridge_records_consumed_total{topic="t",partition="0"}': "0+60x100",
            'bridge_lag_records{topic="t",partition="0"}': "0x100",
        },
    ),
    # A bad release: no attempt of its workers has succeeded, ever. Their series are there from the start, at 0.
    "AHandlerFails": (
        {
            'worker_retried_total{handler="h",reason="failed"}': "0+15x40",
            # The schema registry is down: this alert has to count what waits for it.
            'worker_retried_total{handler="h",reason="registry"}': "0+15x40",
            'worker_handled_total{handler="h",outcome="done"}': "0+20x40",
            'worker_handled_total{handler="h",outcome="failed"}': "0+30x40",
        },
        {
            'worker_retried_total{handler="h",reason="failed"}': "0+1x40",
            'worker_handled_total{handler="h",outcome="done"}': "0+30x40",
        },
    ),
    "SomeOfAHandlerFails": (
        {
            'worker_handled_total{handler="h",outcome="done"}': "0+90x40",
            'worker_handled_total{handler="h",outcome="failed"}': "0+10x40",
        },
        {
            'worker_handled_total{handler="h",outcome="done"}': "0+990x40",
            'worker_handled_total{handler="h",outcome="failed"}': "0+10x40",
        },
    ),
    "ProcessesAreLost": (
        {'worker_lost_processes_total{handler="h",group="g"}': "0x20 1x20"},
        {'worker_lost_processes_total{handler="h",group="g"}': "0x40"},
    ),
    "DeadLettersCannotBeWritten": (
        {'worker_retried_total{handler="h",reason="dead_letter_unpublished"}': "0x10 5+1x30"},
        {'worker_retried_total{handler="h",reason="dead_letter_unpublished"}': "0x40"},
    ),
    "DeliveriesDie": (
        {'worker_dead_lettered_total{handler="h",reason="exhausted"}': "0x20 1x20"},
        {'worker_dead_lettered_total{handler="h",reason="exhausted"}': "3x40"},
    ),
    "DeadLettersWereMissed": (
        {'bridge_deadletters_missed_total{topic="t"}': "0x20 1x20"},
        {'bridge_deadletters_missed_total{topic="t"}': "0x40"},
    ),
    "NobodyRecordsDeadLetters": (
        {
            'bridge_deadletters_recorder_ready{job="orders"}': "0x40",
            'bridge_deadletters_recorder_ready{job="mails"}': "1x40",
        },
        {'bridge_deadletters_recorder_ready{job="orders"}': "1x40"},
    ),
    "TheRecorderIsBehind": (
        {'bridge_deadletters_lag_records{topic="t"}': "1001x40"},
        {'bridge_deadletters_lag_records{topic="t"}': "9x40"},
    ),
    "DeadLettersGrow": (
        {'bridge_deadletters_growing_groups{handler="h"}': "1x40"},
        {'bridge_deadletters_growing_groups{handler="h"}': "0x40"},
    ),
    "DeadLettersAreLeft": (
        {"bridge_deadletters_oldest_open_seconds": "700000x40"},
        {"bridge_deadletters_oldest_open_seconds": "60x40"},
    ),
    "ReplaysDieAgain": (
        {'bridge_deadletters_replays_total{outcome="dead"}': "0x20 2x20"},
        {'bridge_deadletters_replays_total{outcome="unknown"}': "0x20 2x20"},
    ),
    "ReplaysEndUnknown": (
        {'bridge_deadletters_replays_total{outcome="unknown"}': "0x20 2x20"},
        {'bridge_deadletters_replays_total{outcome="dead"}': "0x20 2x20"},
    ),
    "APlanAwaitsApproval": (
        {"bridge_deadletters_plans_awaiting": "1x40"},
        {"bridge_deadletters_plans_awaiting": "0x40"},
    ),
    "AWebhookIsBehind": (
        {'bridge_deadletters_webhook_oldest_waiting_seconds{webhook="pager"}': "900x40"},
        {'bridge_deadletters_webhook_oldest_waiting_seconds{webhook="pager"}': "30x40"},
    ),
    "AWebhookGaveUp": (
        {'bridge_deadletters_webhook_deliveries{webhook="pager",state="given up"}': "3x20 4x20"},
        # Those of a week ago leave the count.
        {'bridge_deadletters_webhook_deliveries{webhook="pager",state="given up"}': "3x20 2x20"},
    ),
    **{
        alert.name: (
            {f'bridge_problems{{problem="{row.identifier}",instance="{one}"}}': "1x40" for one in "ab"},
            {f'bridge_problems{{problem="{row.identifier}",instance="a"}}': "0x40"},
        )
        for row in PROBLEM_TABLE
        for alert in row.alerts
        if "bridge_problems" in alert.expression
    },
}
#: When each is looked at; what needs half an hour of history or more is looked at later.
AT: Final = {"ConsumptionFallsBehind": "38m", "TrafficStopped": "35m"}


def test_each_alert_has_its_incident() -> None:
    assert {alert.name for row in PROBLEM_TABLE for alert in row.alerts} == INCIDENTS.keys()


def test_each_alert_names_the_runbook_of_its_problem() -> None:
    page = (ROOT / "docs" / "runbooks" / "problems.md").read_text()
    named = re.findall(r"- alert: (\w+)\n(?:.*\n)+? +annotations: .*, runbook: '(.+)#(\w+)'}", RULES.read_text())
    assert [name for name, _, _ in named] == [alert.name for row in PROBLEM_TABLE for alert in row.alerts]
    assert {file for _, file, _ in named} == {"docs/runbooks/problems.md"}
    assert [anchor for _, _, anchor in named if f"\n## {anchor}\n" not in page] == []


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here (on Debian: apt install prometheus)")
def test_each_alert_fires_in_its_incident_and_where_all_is_well_it_does_not(tmp_path: Path) -> None:
    tests = []
    for name, (incident, well) in INCIDENTS.items():
        at = AT.get(name, "14m")
        for series, fires in ((incident, True), (well, False)):
            tests.append(
                {
                    "interval": "30s",
                    "input_series": [{"series": each, "values": values} for each, values in series.items()],
                    # What is asked is whether any fires, whatever its labels say.
                    "promql_expr_test": [
                        {
                            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                            "eval_time": at,
                            "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                        }
                    ],
                    "name": f"{name} {'fires' if fires else 'is silent'}",
                }
            )
    plan: dict[str, Any] = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}
    # JSON is YAML.
    (tmp_path / "tests.yml").write_text(json.dumps(plan))
    found = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "tests.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here (on Debian: apt install prometheus)")
def test_prometheus_parses_every_query_of_every_dashboard(tmp_path: Path) -> None:
    queries = [
        target["expr"]
        for file in sorted((ROOT / "deploy" / "dashboards").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
        for target in panel["targets"]
    ]
    # As Grafana fills its variables in.
    filled = [re.sub(r"\$\w+", "orders", query.replace("$__rate_interval", "5m")) for query in queries]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(filled)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    found = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "queries.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(queries)} rules found" in found.stdout
