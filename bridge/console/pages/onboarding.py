"""The onboarding checklist of the overview, shown until a first letter was replayed (pure)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.letter_statistics import LetterCounts
from bridge.formats.text_forms import format_count
from bridge.jobs.group_facts import format_letter_count as letters_said


class OnboardingCheck(NamedTuple):
    """A thing that a complete installation has.

    Attributes:
        next: what to do if it is missing.
    """

    what: str
    that: str
    there: bool
    state: str
    next: str = ""


def list_onboarding_checks(
    desk: DeadLetterService, status: Mapping[str, Any], stats: LetterCounts
) -> list[OnboardingCheck]:
    """Return what is there and what is missing; nothing once a letter was replayed and resolved."""
    if stats.statuses.get("resolved") or stats.statuses.get("replaying"):
        return []
    bridges, workers = status.get("bridges") or {}, status.get("workers") or {}
    versions = {v for each in workers.values() for v in each.get("handler_versions", {}).values() if v}
    letters = sum(stats.statuses.values())
    processes = sum(each["processes"] for each in workers.values())
    return [
        OnboardingCheck(
            "A bridge",
            f"consumes {', '.join(desk.routes.topics)}",
            bool(bridges),
            _describe_count(len(bridges)),
            "`bridge run`",
        ),
        OnboardingCheck(
            "A worker",
            f"takes {', '.join(desk.routes.queues)}",
            bool(workers),
            f"{_describe_count(len(workers))}, {format_count(processes, 'process')}",
            f"`celery -A {desk.settings.app} worker`",
        ),
        OnboardingCheck(
            "The recorder",
            f"has its database, {desk.database.name}",
            bool(letters),
            letters_said(letters),
            "None was recorded yet: `bridge deadletters record` runs beside the bridge",
        ),
        OnboardingCheck(
            "The version",
            "of your code is known",
            bool(versions),
            ", ".join(sorted(versions)) or "unknown",
            "Set `KAFKA_HANDLERS_VERSION` where workers start: groups then know which version fails",
        ),
    ]


def _describe_count(count: int) -> str:
    return f"{count} alive" if count else "none"
