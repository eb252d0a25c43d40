"""A difference as rows of a page, with the changed characters framed (pure)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A line of a difference.

    Attributes:
        kind: "minus", "plus", "" (the same before and after), or "cut": what lies between is left out.
        before, changed, after: the line in three parts, of which the middle one is framed.
    """

    kind: str
    before: str
    changed: str = ""
    after: str = ""


def rows(difference: str) -> list[Row]:
    """The rows of a unified diff."""
    found: list[Row] = []
    old: list[str] = []
    new: list[str] = []
    for line in difference.splitlines()[2:]:
        if line[:1] in ("-", "+"):
            (old if line[0] == "-" else new).append(line[1:])
            continue
        found += _paired(old, new)
        old, new = [], []
        if not line.startswith("@@"):
            found.append(Row("cut" if line.startswith("…") else "", line[1:] if line[:1] == " " else line))
        elif found:
            found.append(Row("cut", "…"))
    return [*found, *_paired(old, new)]


def _paired(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    """Lines that went and lines that came; what two have in common at their ends is not framed."""
    pairs = min(len(old), len(new))
    framed = [_framed(*pair) for pair in zip(old, new, strict=False)]
    yield from (Row("minus", *parts) for parts, _ in framed)
    yield from (Row("minus", line) for line in old[pairs:])
    yield from (Row("plus", *parts) for _, parts in framed)
    yield from (Row("plus", line) for line in new[pairs:])


_Parts = tuple[str, str, str]


def _framed(old: str, new: str) -> tuple[_Parts, _Parts]:
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    return _cut(old, head, tail), _cut(new, head, tail)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cut(line: str, head: int, tail: int) -> _Parts:
    end = len(line) - tail
    return line[:head], line[head:end], line[end:]
