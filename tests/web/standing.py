"""What `bridge status --json` answers, as data: of one topic, its handler, a bridge and a worker that are well."""

from typing import Any

from tests.desk.letters import HANDLER

#: Two minutes before the times below.
SINCE = "2026-11-21T01:58:04Z"
BRIDGE = {
    "started": "2026-11-18T06:02:00Z",
    "topics": ["orders"],
    "assigned": ["orders-0", "orders-1"],
    "paused": {},
    "paused_since": {},
}
WORKER = {
    "started": "2026-11-21T02:31:00Z",
    "queues": ["q"],
    "processes": 8,
    "handlers": [HANDLER],
    "handler_versions": {HANDLER: "1.4.2"},
    "holds": {"q": {HANDLER: 96}},
}


def status(**other: Any) -> dict[str, Any]:
    """That answer, with what else is said of it."""
    at = {"committed": 100, "end": 307, "lag": 207}
    return {
        "group": "shop",
        "problems": [],
        "topics": {"orders": {"0": at, "1": {**at, "lag": 7}}},
        "bridges": {"host:1": BRIDGE},
        "workers": {"host:2": WORKER},
        "queues": {"q": {"messages": 12, "workers": 1, "backlog": None}},
        "oldest": [{"topic": "orders", "handler": HANDLER, "seconds": 1.8}],
        "parked": [
            {"source": "orders", "topic": "orders.retry.5m", "delay": 300, "records": 22},
            {"source": "orders", "topic": "orders.replay", "delay": None, "records": 0},
        ],
        "halted": {},
        "policies": {},
        "breakers": {},
        "unanswered": [],
        **other,
    }
