"""A JSON Patch (RFC 6902), and what it makes of values (pure)."""

from dataclasses import dataclass
from typing import Any, Final

from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed
from jsonpointer import JsonPointerException, resolve_pointer

from bridge.deadletters.mending import json_text
from bridge.errors import NoJson, PatchDoesNotApply, PatchRefused

#: Bytes that copies may add to one value: each may double it, and forty do so to a terabyte.
COPIED: Final = 1_000_000
#: What an operation must have besides its path.
_NEEDED: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}


@dataclass(frozen=True, slots=True)
class Patch:
    """Operations on a value, all of which apply or none.

    Attributes:
        text: as it was given.
    """

    text: str
    _steps: tuple[tuple[str, JsonPatch], ...]

    @classmethod
    def read(cls, text: str) -> "Patch":
        """The patch that a JSON text is.

        Raises:
            PatchRefused: it is none; says which operation, and why.
        """
        try:
            operations = json_text.read(text)
        except NoJson as error:
            raise PatchRefused(f"The patch is no JSON: {error}.") from None
        if not isinstance(operations, list) or not operations:
            raise PatchRefused('A patch is a list of operations: [{"op": "replace", "path": "/amount", "value": 12}].')
        return cls(text, tuple(_step(number, each) for number, each in enumerate(operations, 1)))

    def applied(self, value: bytes | None) -> bytes:
        """What it makes of a value; the very bytes where that is no change.

        Raises:
            NoJson: the value is none, or one that could not be written again without a loss.
            PatchDoesNotApply: one of its operations does not; says which, and nothing of the value.
        """
        if value is None:
            raise NoJson("it is a tombstone")
        before, found, copied = json_text.read(value), json_text.read(value), 0
        for name, step in self._steps:
            try:
                copied += _copied(step, found)
                if copied > COPIED:
                    words = f"{name}: copies would add more than {COPIED:,} bytes to it"
                    raise PatchDoesNotApply(words)
                found = step.apply(found, in_place=True)
            except JsonPatchTestFailed:
                raise PatchDoesNotApply(f"{name}: it is not that") from None
            except (JsonPatchException, JsonPointerException):
                raise PatchDoesNotApply(f"{name}: there is no such place in it") from None
            except RecursionError:
                raise NoJson("it is nested too deeply") from None
        made = json_text.written(found, value)
        return value if made == json_text.written(before, value) else made


def _copied(step: JsonPatch, value: Any) -> int:
    """Bytes that a step adds to a value by copying a part of it."""
    (operation,) = step.patch
    return len(json_text.written(resolve_pointer(value, operation["from"]))) if operation["op"] == "copy" else 0


def _step(number: int, operation: Any) -> tuple[str, JsonPatch]:
    """An operation with its name for people."""
    if not isinstance(operation, dict):
        raise PatchRefused(f"Operation {number} of the patch is no object.")
    name = f"{operation.get('op')} {operation.get('path')}"
    if (needed := _NEEDED.get(str(operation.get("op")))) and needed not in operation:
        raise PatchRefused(f"Operation {number} of the patch ({name}) has no {needed!r}.")
    try:
        return name, JsonPatch([operation])
    except (JsonPatchException, JsonPointerException) as error:
        raise PatchRefused(f"Operation {number} of the patch ({name}) is none: {error}.") from None
