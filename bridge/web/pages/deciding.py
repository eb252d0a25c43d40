"""What the pages that decide for the group have in common: the reason, and the trail."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.errors import DeskUnavailable
from bridge.web import console

logger = logging.getLogger("bridge")

#: Characters of a reason.
WHY: Final = 500


def why(request: Request) -> str:
    """Why somebody does it, as the form says.

    Raises:
        HTTPException: nothing is said, or too much.
    """
    said = " ".join(str(request.state.form.get("why", "")).split())
    if not said:
        raise HTTPException(400, "Say why: it is for whoever is on call next. Nothing was changed.")
    if len(said) > WHY:
        raise HTTPException(400, f"Say why in {WHY} characters. Nothing was changed.")
    return said


def decided(request: Request, what: str, said: str) -> None:
    """It was decided: the trail has it, and who looks next sees it."""
    asked = console.of(request)
    asked.looking.forget()
    try:
        asked.desk.trail.add(console.asking(request).name, what, said)
    except DeskUnavailable as error:
        # Kafka has who, when and why.
        logger.warning("not in the trail: %s by %s: %s", what, console.asking(request).name, error)


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
