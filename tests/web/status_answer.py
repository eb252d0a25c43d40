"""What `bridge status --json` answers, as data: of one topic, its handler, a bridge and a worker that are well."""

from collections.abc import Sequence
from typing import Any

from bridge.inspection.status_report import make_problem_data, make_silent_problem
from bridge.problems.problem import Problem
from tests.desk.letters import HANDLER

#: Two minutes before the times below.
SINCE = "2026-11-21T01:58:04Z"
#: The same as a page shows it on another day.
SHOWN = "21 Nov 2026 01:58:04"
BRIDGE = {
    "started": "2026-11-18T06:02:00Z",
    "topics": ["orders"],
    "assigned": ["orders-0", "orders-1"],
    "paused": {},
    "paused_since": {},
    "batches": {HANDLER: {"size": 12, "why": "4 ms each"}},
}
WORKER = {
    "started": "2026-11-21T02:31:00Z",
    "queues": ["q"],
    "processes": 8,
    "handlers": [HANDLER],
    "handler_versions": {HANDLER: "1.4.2"},
    "holds": {"q": {HANDLER: 96}},
}


def counts(**of: dict[str, list[int]]) -> dict[str, Any]:
    """What was counted of the handler: `minutes` and `hours`, of each what came last."""
    whole = {"minutes": 60, "hours": 24}
    whats = ("handled", "failed", "dead", "replayed")
    return {
        "topic": "orders",
        "handler": HANDLER,
        **{
            unit: {
                "from": "2026-11-21T02:00:00+00:00",
                **{what: [0] * (size - len(last := of.get(unit, {}).get(what, []))) + last for what in whats},
            }
            for unit, size in whole.items()
        },
    }


def status(problems: Sequence[str] = (), **other: Any) -> dict[str, Any]:
    """That answer, with what else is said of it."""
    due: dict[str, Any] = {"use": "needed", "next_due": None, "late_seconds": 0.0}
    at = {"committed": 100, "end": 307, "lag": 207}
    return {
        "group": "shop",
        **make_problem_data([each if isinstance(each, Problem) else make_silent_problem(each) for each in problems]),
        "topics": {"orders": {"0": at, "1": {**at, "lag": 7}}},
        "bridges": {"host:1": BRIDGE},
        "workers": {"host:2": WORKER},
        "queues": {"q": {"messages": 12, "workers": 1, "backlog": None}},
        "oldest": [{"topic": "orders", "handler": HANDLER, "seconds": 1.8}],
        "parked": [
            {"source": "orders", "topic": "orders.retry.5m", "delay": 300, "records": 22, **due, "next_due": SINCE},
            {"source": "orders", "topic": "orders.replay", "delay": None, "records": 0, **due},
        ],
        "halted": {},
        "policies": {},
        "breakers": {},
        "counts": [counts(minutes={"handled": [90, 120, 3]})],
        "unanswered": [],
        **other,
    }
