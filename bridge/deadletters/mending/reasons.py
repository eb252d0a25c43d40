"""Why many are not as they should be: counted by reason, each with a few examples, however many they are (pure)."""

from typing import Any, Final

#: Most reasons that are told apart, and examples of each: what is kept of a million has an end.
MOST: Final = 50
EXAMPLES: Final = 5
#: Most characters of a reason.
LONGEST: Final = 500
OTHERS: Final = "other reasons"


class Reasons:
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
