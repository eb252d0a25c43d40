"""Pictures as SVG has them: bars of counts, and a bar of shares; places in its own units, nothing is styled (pure)."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

#: Of a picture of hours: a slot an hour, with a gap between two bars.
HIGH: Final = 24.0
_WIDE: Final = 104.0
_GAP: Final = 0.8
#: What is not zero is seen, however small it is beside the most.
_LEAST: Final = 1.0


class Bar(NamedTuple):
    """A bar of a picture that is 104 wide and 24 high."""

    x: float
    y: float
    width: float
    height: float


class Share(NamedTuple):
    """A part of a bar, in per cent."""

    look: str
    x: float
    width: float


def bars(counts: Sequence[int]) -> list[Bar]:
    """A bar for each count that is not 0, the highest as high as the picture."""
    most = max(counts, default=0)
    slot = _WIDE / max(1, len(counts))
    found = []
    for at, count in enumerate(counts):
        if count:
            height = max(_LEAST, count / most * (HIGH - 1))
            found.append(Bar(round(at * slot, 1), round(HIGH - height, 1), round(slot - _GAP, 1), round(height, 1)))
    return found


def told(counts: Sequence[int]) -> str:
    """The same for who does not see it: the last six hours by number, those before by their most."""
    before, last = counts[:-6], counts[-6:]
    said = f"at most {max(before):,} an hour before, then " if any(before) else "none before, then "
    return f"Failures an hour: {said}{', '.join(f'{count:,}' for count in last)}"


def shares(counts: Mapping[str, int]) -> list[Share]:
    """Parts of a bar, one after another, by what they look like; without those of nothing."""
    total = sum(counts.values())
    found, at = [], 0.0
    for look, count in counts.items():
        if count and total:
            width = count / total * 100
            found.append(Share(look, round(at, 2), round(width, 2)))
            at += width
    return found
