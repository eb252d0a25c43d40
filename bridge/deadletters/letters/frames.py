"""A traceback in parts: the user's frames, and what stands around them (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from bridge.deadletters.letters.place import CHAINED, is_frame, is_users


class Part(NamedTuple):
    """Lines of a traceback that belong together.

    Attributes:
        what: "yours", a frame of the user's code; "theirs", frames of other code; "said", what is no frame.
        lines: of a frame also its line of code.
        frames: how many they are.
    """

    what: str
    lines: Sequence[str]
    frames: int = 0


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a chain.

    Attributes:
        parts: as they were printed.
        title: its last line: class and message.
    """

    parts: tuple[Part, ...]
    title: str

    @property
    def raised_at(self) -> int | None:
        """The user's part that is nearest to where it was raised; `None`: there is none."""
        yours = [at for at, part in enumerate(self.parts) if part.what == "yours"]
        # Python says the last call last, Java first.
        is_python = any(part.lines[0].lstrip().startswith("File ") for part in self.parts if part.frames)
        return (yours[-1] if is_python else yours[0]) if yours else None


def raised(traceback: str, handler: str = "") -> list[Raised]:
    """The exceptions of a traceback, each one the cause of the next.

    Parameters:
        handler: as for `bridge.deadletters.letters.place.place`.
    """
    return [
        Raised(tuple(_parts(lines, handler)), next((line for line in reversed(lines) if line.strip()), ""))
        for lines in _chain(traceback.splitlines())
        if any(line.strip() for line in lines)
    ]


def _chain(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each exception, the first one first; without the words between two."""
    begins = 0
    for at in [*(at for at, line in enumerate(lines) if line.strip() in CHAINED), len(lines)]:
        yield list(lines[begins:at])
        begins = at + 1


def _parts(lines: Iterable[str], handler: str) -> Iterator[Part]:
    """Frames of other code that follow each other are one part; each of the user's is one of its own."""
    found = [part for part in _frames(lines, handler) if any(line.strip() for line in part.lines)]
    for what, some in groupby(found, key=lambda part: part.what):
        if what == "yours":
            yield from some
            continue
        run = list(some)
        yield Part(what, [line for part in run for line in part.lines], sum(part.frames for part in run))


def _frames(lines: Iterable[str], handler: str) -> Iterator[Part]:
    part: Part | None = None
    for line in lines:
        if is_frame(line):
            if part is not None:
                yield part
            part = Part("yours" if is_users(line, handler) else "theirs", [line], 1)
        elif part is not None and part.frames and line.startswith("    "):
            # Its line of code, and what points into that.
            part = part._replace(lines=[*part.lines, line])
        else:
            if part is not None:
                yield part
            part = Part("said", [line])
    if part is not None:
        yield part
