"""A decision of a console user: its audit entry, its durability warnings, and the version that was seen."""

import logging
from collections.abc import Mapping
from typing import Any

from bridge.console.console import Console
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.failure_groups import FixedCause, GroupState
from bridge.errors import DeskUnavailable

logger = logging.getLogger("bridge")


def note_decision(asked: Console, desk: DeadLetterService, by: str, what: str, said: str) -> None:
    """Write a decision to the audit log, and have the next reader see its effect.

    Parameters:
        desk: the store whose audit log gets the entry.
    """
    asked.status_cache.forget()
    try:
        desk.trail.add(by, what, said)
    except DeskUnavailable as error:
        # Kafka has who, when and why.
        logger.warning("not in the audit log: %s by %s: %s", what, by, error)


def list_durability_warnings(found: Mapping[str, Any]) -> list[str]:
    """Return a warning for each of Kafka and Redis that does not have a decision yet."""
    told = []
    if found.get("unpublished"):
        told.append(
            "Not durable yet: only Redis has the decision. If Redis is wiped before a bridge writes it to Kafka, "
            f"it is lost. Repeat it when Kafka responds. ({found['unpublished']})"
        )
    if found.get("unmirrored"):
        told.append(f"Redis does not have the decision yet; a bridge will write it there: {found['unmirrored']}")
    return told


def build_group_version(group: GroupState | FixedCause) -> str:
    """Return the version of a group or cause that a user saw when deciding whether it is fixed."""
    return f"{group.fixed_in or ''} {group.fixed_at or 0} {group.regressed_at or 0}"
