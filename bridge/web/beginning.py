"""Whether all is there that a console shows something of: on the overview until a first letter was replayed (pure)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bridge.deadletters.desk import Desk
from bridge.deadletters.questions.totals import Counted
from bridge.upkeep.facts import letters as letters_said


class Check(NamedTuple):
    """One thing that should be there.

    Attributes:
        next: what to do where it is not there.
    """

    what: str
    that: str
    there: bool
    state: str
    next: str = ""


def checks(desk: Desk, status: Mapping[str, Any], stats: Counted) -> list[Check]:
    """What is there and what is missing; nothing once a letter was replayed and resolved."""
    if stats.statuses.get("resolved") or stats.statuses.get("replaying"):
        return []
    bridges, workers = status.get("bridges") or {}, status.get("workers") or {}
    versions = {v for each in workers.values() for v in each.get("handler_versions", {}).values() if v}
    letters = sum(stats.statuses.values())
    processes = sum(each["processes"] for each in workers.values())
    return [
        Check(
            "A bridge", f"consumes {', '.join(desk.routes.topics)}", bool(bridges), _alive(len(bridges)), "`bridge run`"
        ),
        Check(
            "A worker",
            f"takes {', '.join(desk.routes.queues)}",
            bool(workers),
            f"{_alive(len(workers))}, {processes} processes",
            f"`celery -A {desk.settings.app} worker`",
        ),
        Check(
            "The recorder",
            f"has its database, {desk.database.name}",
            bool(letters),
            letters_said(letters),
            "None was recorded yet: `bridge deadletters record` runs beside the bridge",
        ),
        Check(
            "The version",
            "of your code is known",
            bool(versions),
            ", ".join(sorted(versions)) or "unknown",
            "Set `KAFKA_HANDLERS_VERSION` where workers start: groups then know which version fails",
        ),
    ]


def _alive(count: int) -> str:
    return f"{count} alive" if count else "none"
