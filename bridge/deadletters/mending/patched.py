"""What a JSON Patch makes of many letters: counted, with the reasons of those that go back with no new value."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery import Celery

from bridge.deadletters.mending.patching import Patch
from bridge.deadletters.mending.reasons import Reasons
from bridge.deadletters.mending.validating import verdict
from bridge.deadletters.store.values import Valued
from bridge.errors import NoJson, PatchDoesNotApply


class Patched(NamedTuple):
    """What a patch makes of a letter's value; `None`, and why: it gets none."""

    value: bytes | None
    why: str = ""


@dataclass
class Pass:
    """A patch on its way over letters.

    Attributes:
        changed: how many go back with a new value.
        unchanged: of which the patch changes nothing.
        no_json: that are no JSON, or could not be written again without a loss.
        not_applied: that have not what the patch asks for.
        not_valid: that their handlers would not take after it, or of which that cannot be told here.
    """

    changed: int = 0
    unchanged: int = 0
    no_json: Reasons = field(default_factory=Reasons)
    not_applied: Reasons = field(default_factory=Reasons)
    not_valid: Reasons = field(default_factory=Reasons)

    def one(self, app: Celery, letter: Valued, patch: Patch, *, force: bool) -> Patched:
        """What becomes of one letter.

        Parameters:
            force: also where its handler would not take it.
        """
        if not letter.is_kept:
            return self._left(self.no_json, letter, "its value is not in the database, for its size", "")
        try:
            value = patch.applied(letter.value)
        except NoJson as error:
            return self._left(self.no_json, letter, str(error), "no JSON that can be patched: ")
        except PatchDoesNotApply as error:
            return self._left(self.not_applied, letter, str(error), "the patch does not apply: ")
        if value == letter.value:
            self.unchanged += 1
            return Patched(None, "the patch changes nothing of it")
        said = verdict(app, letter.handler, value)
        if not said.ok and not force:
            return self._left(self.not_valid, letter, said.why, "its handler would not take it after the patch: ")
        self.changed += 1
        return Patched(value)

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        reasons = {"no_json": self.no_json, "not_applied": self.not_applied, "not_valid": self.not_valid}
        found: dict[str, Any] = {"changed": self.changed, "unchanged": self.unchanged}
        found |= {name: each.count for name, each in reasons.items()}
        return found | {f"{name}_reasons": each.to_data() for name, each in reasons.items() if each.count}

    @staticmethod
    def _left(reasons: Reasons, letter: Valued, why: str, what: str) -> Patched:
        reasons.add(why, letter.id)
        return Patched(None, what + why)
