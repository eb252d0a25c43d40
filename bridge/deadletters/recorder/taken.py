"""What a recorder has taken in since it began, for who looks on."""

from collections import Counter
from collections.abc import Iterable, Mapping

from bridge.deadletters.letters.letter import Letter
from bridge.deadletters.letters.reading import OURS


class Taken:
    """Records counted by what they told, and those that no worker of ours wrote by who did.

    Attributes:
        counts: what a record told ("new", "duplicate", …, as the metric says it) → records.
        theirs: who wrote it → records.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.theirs: Counter[str] = Counter()

    def add(self, letters: Iterable[Letter | None], counts: Mapping[tuple[str, str], int]) -> None:
        """Count a batch that was written.

        Parameters:
            letters: of its records; `None` for another group's.
            counts: (topic, what) → records.
        """
        for (_, what), count in counts.items():
            self.counts[what] += count
        self.theirs.update(each.kind.origin for each in letters if each is not None and each.kind.origin != OURS)

    def __str__(self) -> str:
        """`1,204 records: 1,200 new, 4 duplicate; 3 of them by others (spring 2, unknown 1)`."""
        said = _listed(f"{count:,} {what}" for what, count in self.counts.most_common())
        others = _listed(f"{who} {count:,}" for who, count in self.theirs.most_common())
        words = f"{self.counts.total():,} records" + (f": {said}" if said else "")
        return f"{words}; {self.theirs.total():,} of them by others ({others})" if others else words


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
