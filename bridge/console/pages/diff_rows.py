"""A difference of two values as rows of a page, with the changed characters framed (pure)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class DiffRow(NamedTuple):
    """A line of a difference.

    Attributes:
        kind: "minus", "plus", "" (unchanged), or "cut" (unchanged lines are left out).
        before, changed, after: the line in three parts; the middle one is framed.
    """

    kind: str
    before: str
    changed: str = ""
    after: str = ""


def build_diff_rows(difference: str) -> list[DiffRow]:
    """Return the rows of a unified diff."""
    found: list[DiffRow] = []
    old: list[str] = []
    new: list[str] = []
    for line in difference.split("\n")[2:]:
        if line[:1] in ("-", "+"):
            (old if line[0] == "-" else new).append(line[1:])
            continue
        found += _pair_lines(old, new)
        old, new = [], []
        if not line.startswith("@@"):
            found.append(DiffRow("cut" if line.startswith("…") else "", line[1:] if line[:1] == " " else line))
        elif found:
            found.append(DiffRow("cut", "…"))
    return [*found, *_pair_lines(old, new)]


def _pair_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffRow]:
    """Pair removed and added lines; the common start and end of a pair is not framed."""
    pairs = min(len(old), len(new))
    framed = [_frame_change(*pair) for pair in zip(old, new, strict=False)]
    yield from (DiffRow("minus", *parts) for parts, _ in framed)
    yield from (DiffRow("minus", line) for line in old[pairs:])
    yield from (DiffRow("plus", *parts) for _, parts in framed)
    yield from (DiffRow("plus", line) for line in new[pairs:])


_Parts = tuple[str, str, str]


def _frame_change(old: str, new: str) -> tuple[_Parts, _Parts]:
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    return _split_line(old, head, tail), _split_line(new, head, tail)


def _count_common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _split_line(line: str, head: int, tail: int) -> _Parts:
    end = len(line) - tail
    return line[:head], line[head:end], line[end:]
