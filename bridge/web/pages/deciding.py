"""What the pages that decide for the group have in common: the reason, and the trail."""

from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.web import console
from bridge.web.deciding import note

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
