"""What the pages that decide for the group have in common: the reason, and the trail."""

import logging
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.deadletters.desk import Desk
from bridge.errors import DeskUnavailable
from bridge.web import console
from bridge.web.console import Console

logger = logging.getLogger("bridge")

#: Characters of a reason.
WHY: Final = 500
#: Of a reason for an edit, and of a note.
WHY_EDITED: Final = 1_000
NOTE: Final = 4_000
#: Digits of a number that is one too many.
_DIGITS: Final = 20

Default = TypeVar("Default", int, None)


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


def number(text: str, otherwise: Default) -> int | Default:
    """A number that a form says; `otherwise` where it is none, or one that no database has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else otherwise


def limited(said: str, longest: int) -> str:
    """What somebody says in their own words: the trail keeps it for ever, and pages repeat it.

    Raises:
        HTTPException: it is too much.
    """
    said = said.strip()
    if len(said) > longest:
        raise HTTPException(400, f"Say it in {longest:,} characters. Nothing was changed.")
    return said


def decided(request: Request, what: str, said: str) -> None:
    """It was decided: the trail has it, and who looks next sees it."""
    asked = console.of(request)
    note(asked, asked.desk, console.asking(request).name, what, said)


def note(asked: Console, desk: Desk, by: str, what: str, said: str) -> None:
    """Somebody has decided it: the trail has it, and who looks next sees it.

    Parameters:
        desk: in whose trail it stands.
    """
    asked.looking.forget()
    try:
        desk.trail.add(by, what, said)
    except DeskUnavailable as error:
        # Kafka has who, when and why.
        logger.warning("not in the trail: %s by %s: %s", what, by, error)


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
