"""Steps that Redis refuses: what is said of them, and when they are tried again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import monotonic

from kombu.log import get_logger

from lossless.transport.riding import Step

logger = get_logger("lossless.transport")

#: The first and the longest pause between two tries, in seconds.
SHORTEST, LONGEST = 0.1, 5.0


class Refusals:
    """Of one holder. What is refused once is tried again at once, then ever more seldom; each reason is said once."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._pause = 0.0
        self._due_at = 0.0

    def of(self, answer: str, fields: Collection[str], steps: Mapping[str, Step]) -> set[str]:
        """Return the fields of which the step was refused, of those that were sent, and say why.

        Parameters:
            answer: what acknowledge.lua returned.
            steps: of the fields.
        """
        named, _, why = answer.partition("\n")
        found = [field for field in named.split(",") if field in fields]
        if found and why not in self._said:
            self._said.add(why)
            keys = ", ".join(map(str, steps[found[0]].keys)) if found[0] in steps else "keys that are not known"
            logger.error(
                "Redis refused what goes along with the acknowledgement of %d messages; they stay held, and it is "
                "tried again. The first is %s, on %s: %s", len(found), found[0], keys, why,
            )  # fmt: skip
        return set(found)

    def due(self) -> bool:
        """Whether what was refused is to be tried again."""
        return monotonic() >= self._due_at

    def tried(self, refused: bool) -> None:
        """Be told that all of it was tried again, and whether any is refused still."""
        if not refused:
            self._said.clear()
        self._pause = min(max(2 * self._pause, SHORTEST), LONGEST) if refused else 0.0
        self._due_at = monotonic() + self._pause
