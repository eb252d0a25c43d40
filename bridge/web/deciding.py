"""What pages and the API have in common where somebody decides for the group: the seen state, the audit log."""

import logging
from collections.abc import Mapping
from typing import Any

from bridge.deadletters.desk import Desk
from bridge.deadletters.questions.groups import CauseFix, Grouped
from bridge.errors import DeskUnavailable
from bridge.web.console import Console

logger = logging.getLogger("bridge")


def note(asked: Console, desk: Desk, by: str, what: str, said: str) -> None:
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


def unsafe(found: Mapping[str, Any]) -> list[str]:
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


def act(group: Grouped | CauseFix) -> str:
    """The marks of a group or cause that somebody saw who decides whether it is fixed."""
    return f"{group.fixed_in or ''} {group.fixed_at or 0} {group.regressed_at or 0}"
