"""Which letters their handlers would take now, with the code that this process has: looked at before they go back."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from bridge.deadletters.mending.reasons import Reasons
from bridge.deadletters.mending.validating import verdict
from bridge.deadletters.store.values import Valued


@dataclass
class Checked:
    """What handlers say of letters.

    Attributes:
        valid: letters that they take as they are.
        upgraded: letters that they take after their `upgrade`.
        invalid: letters that they do not take.
        unknown: letters of which it cannot be told here and now.
    """

    valid: int = 0
    upgraded: int = 0
    invalid: Reasons = field(default_factory=Reasons)
    unknown: Reasons = field(default_factory=Reasons)

    @property
    def letters(self) -> int:
        """How many were looked at."""
        return self.valid + self.upgraded + self.invalid.count + self.unknown.count

    def look(self, app: Celery, found: Iterable[Valued]) -> None:
        """Ask the handlers of some letters."""
        for letter in found:
            self._count(letter.id, app, letter)

    def _count(self, id_: int, app: Celery, letter: Valued) -> None:
        if not letter.is_kept:
            self.unknown.add("its value is not in the database, for its size", id_)
            return
        said = verdict(app, letter.handler, letter.value)
        if said.ok:
            self.upgraded += said.upgraded
            self.valid += not said.upgraded
        else:
            (self.unknown if said.ok is None else self.invalid).add(said.why, id_)

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        counts = {"letters": self.letters, "valid": self.valid, "upgraded": self.upgraded}
        kinds = {"invalid": self.invalid, "unknown": self.unknown}
        reasons = {f"{name}_reasons": each.to_data() for name, each in kinds.items()}
        return counts | {name: each.count for name, each in kinds.items()} | reasons
