"""Whether handlers would take a value, asked of their own codec, model and `upgrade`, with the refusals counted by
reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from celery import Celery

from bridge.deadletters.db.letter_payload import LetterValue


class HandlerVerdict(NamedTuple):
    """What a handler says of a value.

    Attributes:
        ok: whether it would be given it; `None`: that cannot be told here and now.
        why: why not, or why it cannot be told; empty where it is ok.
        upgraded: whether it is ok only after the handler's `upgrade`.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False


def ask_handler(app: Celery, handler: str, value: bytes | None) -> HandlerVerdict:
    """What a handler says of a value, without running.

    Parameters:
        handler: of others' letters, "": nobody but whoever wrote the letter knows what its values must be.
        value: `None` is a tombstone, which every handler takes.
    """
    if not handler:
        return HandlerVerdict(None, "no handler of this group reads it: nobody here knows what its value must be")
    tasks: Mapping[str, Any] = app.tasks
    check = getattr(tasks.get(handler), "check_value", None)
    if check is None:
        return HandlerVerdict(None, f"{handler} is no handler of this app: see -A, HANDLERS and `imports`")
    found = check(value)
    return HandlerVerdict(found.ok, found.why, found.upgraded)


#: Most reasons that are told apart, and examples of each: what is kept of a million has an end.
MOST: Final = 50
EXAMPLES: Final = 5
#: Most characters of a reason.
LONGEST: Final = 500
OTHERS: Final = "other reasons"


class ReasonCounts:
    """Counts reasons.

    Attributes:
        count: of all.
    """

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[str, tuple[int, list[int]]] = {}

    def add(self, why: str, letter: int) -> None:
        """One more has this reason.

        Parameters:
            letter: its id.
        """
        self.count += 1
        why = why[:LONGEST]
        if why not in self._found and len(self._found) >= MOST:
            why = OTHERS
        count, examples = self._found.get(why, (0, []))
        self._found[why] = (count + 1, examples if len(examples) >= EXAMPLES else [*examples, letter])

    def to_data(self) -> list[dict[str, Any]]:
        """As JSON, the most frequent first: `[{"why", "count", "letters"}]`, of which the last are examples."""
        found = sorted(self._found.items(), key=lambda each: (each[0] == OTHERS, -each[1][0], each[0]))
        return [{"why": why, "count": count, "letters": examples} for why, (count, examples) in found]


@dataclass
class HandlerCheck:
    """What handlers say of letters.

    Attributes:
        valid: letters that they take as they are.
        upgraded: letters that they take after their `upgrade`.
        invalid: letters that they do not take.
        unknown: letters of which it cannot be told here and now.
    """

    valid: int = 0
    upgraded: int = 0
    invalid: ReasonCounts = field(default_factory=ReasonCounts)
    unknown: ReasonCounts = field(default_factory=ReasonCounts)

    @property
    def letters(self) -> int:
        """How many were looked at."""
        return self.valid + self.upgraded + self.invalid.count + self.unknown.count

    def look(self, app: Celery, found: Iterable[LetterValue]) -> None:
        """Ask the handlers of some letters."""
        for letter in found:
            self._count(letter.id, app, letter)

    def _count(self, id_: int, app: Celery, letter: LetterValue) -> None:
        if not letter.is_kept:
            self.unknown.add("its value is not in the database, for its size", id_)
            return
        said = ask_handler(app, letter.handler, letter.value)
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
