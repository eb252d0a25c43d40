"""A JSON Patch (RFC 6902), and its result for the values of many letters."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from celery import Celery
from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed
from jsonpointer import JsonPointerException, resolve_pointer

from bridge.deadletters.db.letter_payload import LetterValue
from bridge.deadletters.editing.handler_check import ReasonCounts, ask_handler
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.errors import EditRefused, NoJson, PatchDoesNotApply, PatchRefused

#: Most bytes that copies may add to one value: each may double it, so forty would make a terabyte.
COPIED: Final = 1_000_000
#: The member that each operation needs besides its path.
_NEEDED: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}


@dataclass(frozen=True, slots=True)
class ValuePatch:
    """Operations on a value, all of which apply or none.

    Attributes:
        text: as it was given.
    """

    text: str
    _steps: tuple[tuple[str, JsonPatch], ...]

    @classmethod
    def read(cls, text: str) -> "ValuePatch":
        """Return the patch of a JSON text.

        Raises:
            PatchRefused: it is invalid; the message names the operation and the reason.
        """
        try:
            operations = exact_json.parse_json(text)
        except NoJson as error:
            raise PatchRefused(f"The patch is no JSON: {error}.") from None
        if not isinstance(operations, list) or not operations:
            raise PatchRefused('A patch is a list of operations: [{"op": "replace", "path": "/amount", "value": 12}].')
        return cls(text, tuple(_describe_step(number, each) for number, each in enumerate(operations, 1)))

    def applied(self, value: bytes | None) -> bytes:
        """Return the patched value; the very bytes if nothing changes.

        Raises:
            NoJson: the value is no JSON, or could not be written again without a loss.
            PatchDoesNotApply: an operation fails; the message names it, and has no part of the value.
        """
        if value is None:
            raise NoJson("it is a tombstone")
        before, found, copied = exact_json.parse_json(value), exact_json.parse_json(value), 0
        for name, step in self._steps:
            try:
                copied += _measure_copy(step, found)
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
        made = exact_json.write_json(found, value)
        return value if made == exact_json.write_json(before, value) else made


def _measure_copy(step: JsonPatch, value: Any) -> int:
    """Return the bytes that a step adds to a value by copying a part of it."""
    (operation,) = step.patch
    return len(exact_json.write_json(resolve_pointer(value, operation["from"]))) if operation["op"] == "copy" else 0


def _describe_step(number: int, operation: Any) -> tuple[str, JsonPatch]:
    """Return an operation with its name for people."""
    if not isinstance(operation, dict):
        raise PatchRefused(f"Operation {number} of the patch is no object.")
    name = f"{operation.get('op')} {operation.get('path')}"
    if (needed := _NEEDED.get(str(operation.get("op")))) and needed not in operation:
        raise PatchRefused(f"Operation {number} of the patch ({name}) has no {needed!r}.")
    try:
        return name, JsonPatch([operation])
    except (JsonPatchException, JsonPointerException) as error:
        raise PatchRefused(f"Operation {number} of the patch ({name}) is none: {error}.") from None


class PatchedValue(NamedTuple):
    """The value of a letter after a patch; `None`, with the reason, if it gets none.

    Attributes:
        sent: its bytes for Kafka.
    """

    value: bytes | None
    why: str = ""
    sent: bytes | None = None


@dataclass
class PatchRun:
    """The counts of a patch over letters.

    Attributes:
        changed: letters that get a new value.
        unchanged: letters that the patch does not change.
        no_json: values that are no JSON, or could not be written again without a loss.
        not_applied: values to which the patch does not apply.
        not_valid: patched values that handlers would refuse, or cannot be checked here.
    """

    changed: int = 0
    unchanged: int = 0
    no_json: ReasonCounts = field(default_factory=ReasonCounts)
    not_applied: ReasonCounts = field(default_factory=ReasonCounts)
    not_valid: ReasonCounts = field(default_factory=ReasonCounts)

    def one(
        self, app: Celery, payloads: PayloadCodec, letter: LetterValue, patch: ValuePatch, *, force: bool
    ) -> PatchedValue:
        """Return the patched value of a letter, and count it.

        Parameters:
            letter: with its value for people.
            force: whether a value that the handler would refuse is returned too.
        """
        if not letter.is_kept:
            return self._left(self.no_json, letter, "its value is too large for the database", "")
        try:
            value = patch.applied(letter.value)
        except NoJson as error:
            return self._left(self.no_json, letter, str(error), "no JSON that can be patched: ")
        except PatchDoesNotApply as error:
            return self._left(self.not_applied, letter, str(error), "the patch does not apply: ")
        if value == letter.value:
            self.unchanged += 1
            return PatchedValue(None, "the patch changes nothing of it")
        try:
            sent = payloads.write(value, letter.in_kafka, letter.headers)
        except EditRefused as error:
            return self._left(self.not_valid, letter, str(error).rstrip("."), "the patch made what cannot be sent: ")
        said = ask_handler(app, letter.handler, sent, letter.headers)
        if not said.ok and not force:
            return self._left(self.not_valid, letter, said.why, "its handler would not take it after the patch: ")
        self.changed += 1
        return PatchedValue(value, sent=sent)

    def to_data(self) -> dict[str, Any]:
        """Return the counts and reasons as JSON-compatible data."""
        reasons = {"no_json": self.no_json, "not_applied": self.not_applied, "not_valid": self.not_valid}
        found: dict[str, Any] = {"changed": self.changed, "unchanged": self.unchanged}
        found |= {name: each.count for name, each in reasons.items()}
        return found | {f"{name}_reasons": each.to_data() for name, each in reasons.items() if each.count}

    @staticmethod
    def _left(reasons: ReasonCounts, letter: LetterValue, why: str, what: str) -> PatchedValue:
        reasons.add(why, letter.id)
        return PatchedValue(None, what + why)
