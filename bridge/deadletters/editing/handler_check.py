"""The check whether handlers would accept a value, by their codec, model and `upgrade`, with the refusals counted by
reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from celery import Celery

from bridge.deadletters.db.letter_payload import LetterValue
from bridge.formats.delivery import Headers


class HandlerVerdict(NamedTuple):
    """The verdict of a handler on a value.

    Attributes:
        ok: whether the handler would accept it; `None`: unknown here and now.
        why: why not, or why it is unknown; empty if it is ok.
        upgraded: whether it is ok only after the handler's `upgrade`.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False


def ask_handler(app: Celery, handler: str, value: bytes | None, headers: Headers = ()) -> HandlerVerdict:
    """Return the verdict of a handler on a value, without running it.

    Parameters:
        handler: "" for letters of other programs, whose values nobody here can judge.
        value: `None` is a tombstone, which every handler takes.
        headers: of its record.
    """
    if not handler:
        return HandlerVerdict(None, "no handler of this group reads it, so its value cannot be checked")
    tasks: Mapping[str, Any] = app.tasks
    check = getattr(tasks.get(handler), "check_value", None)
    if check is None:
        return HandlerVerdict(None, f"{handler} is no handler of this app: see -A, HANDLERS and `imports`")
    found = check(value, headers)
    return HandlerVerdict(found.ok, found.why, found.upgraded)


#: Most different reasons, and examples of each: memory is bounded for a million letters.
MOST: Final = 50
EXAMPLES: Final = 5
#: Most characters of a reason.
LONGEST: Final = 500
OTHERS: Final = "other reasons"


class ReasonCounts:
    """Counts of reasons.

    Attributes:
        count: letters with any reason.
    """

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[str, tuple[int, list[int]]] = {}

    def add(self, why: str, letter: int) -> None:
        """Count a letter with a reason.

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
        """Return the reasons as JSON, the most frequent first: `[{"why", "count", "letters"}]`, with ids of
        examples.
        """
        found = sorted(self._found.items(), key=lambda each: (each[0] == OTHERS, -each[1][0], each[0]))
        return [{"why": why, "count": count, "letters": examples} for why, (count, examples) in found]


@dataclass
class HandlerCheck:
    """The verdicts of handlers on letters.

    Attributes:
        valid: letters that they accept as they are.
        upgraded: letters that they accept after their `upgrade`.
        invalid: letters that they refuse.
        unknown: letters without a verdict here and now.
    """

    valid: int = 0
    upgraded: int = 0
    invalid: ReasonCounts = field(default_factory=ReasonCounts)
    unknown: ReasonCounts = field(default_factory=ReasonCounts)

    @property
    def letters(self) -> int:
        """Return the number of letters that were checked."""
        return self.valid + self.upgraded + self.invalid.count + self.unknown.count

    def check_values(self, app: Celery, found: Iterable[LetterValue]) -> None:
        """Ask the handlers of some letters."""
        for letter in found:
            self._count(letter.id, app, letter)

    def _count(self, id_: int, app: Celery, letter: LetterValue) -> None:
        if not letter.is_kept:
            self.unknown.add("its value is too large for the database", id_)
            return
        said = ask_handler(app, letter.handler, letter.in_kafka, letter.headers)
        if said.ok:
            self.upgraded += said.upgraded
            self.valid += not said.upgraded
        else:
            (self.unknown if said.ok is None else self.invalid).add(said.why, id_)

    def to_data(self) -> dict[str, Any]:
        """Return the verdicts as JSON-compatible data."""
        counts = {"letters": self.letters, "valid": self.valid, "upgraded": self.upgraded}
        kinds = {"invalid": self.invalid, "unknown": self.unknown}
        reasons = {f"{name}_reasons": each.to_data() for name, each in kinds.items()}
        return counts | {name: each.count for name, each in kinds.items()} | reasons
