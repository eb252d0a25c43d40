"""A decision of a console user: its audit entry, its durability warnings, and the version that was seen."""

import logging
from collections.abc import Mapping
from typing import Any

from bridge.console.console import Console
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.failure_groups import CauseFix, GroupState
from bridge.errors import DeskUnavailable

logger = logging.getLogger("bridge")


def note_decision(asked: Console, desk: DeadLetterService, by: str, what: str, said: str) -> None:
    """Somebody has decided it: the audit log has it, and who looks next sees it.

    Parameters:
        desk: in whose trail it stands.
    """
    asked.looking.forget()
    try:
        desk.trail.add(by, what, said)
    except DeskUnavailable as error:
        # Kafka has who, when and why.
        logger.warning("not in the audit log: %s by %s: %s", what, by, error)


def list_durability_warnings(found: Mapping[str, Any]) -> list[str]:
    """What became of a decision, where not both Kafka and Redis have it yet."""
    told = []
    if found.get("unpublished"):
        told.append(
            "Not safe yet: Redis alone has it. If that is wiped before a bridge has told Kafka, it is lost. "
            f"Say it once more when Kafka answers. ({found['unpublished']})"
        )
    if found.get("unmirrored"):
        told.append(f"Redis does not have it yet, a bridge tells it: {found['unmirrored']}")
    return told


def build_group_version(group: GroupState | CauseFix) -> str:
    """The marks of a group or cause that somebody saw who decides whether it is fixed."""
    return f"{group.fixed_in or ''} {group.fixed_at or 0} {group.regressed_at or 0}"
