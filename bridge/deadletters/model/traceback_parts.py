"""A traceback in parts: its exceptions, the frames of the user's code, and the message that it repeats (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from bridge.deadletters.model.failure_location import CHAINED, is_frame, is_user_frame


class TracebackPart(NamedTuple):
    """Lines of a traceback that belong together.

    Attributes:
        what: "yours", a frame of the user's code; "theirs", frames of other code; "said", other lines.
        lines: with the line of code of a frame.
        frames: the number of frames.
    """

    what: str
    lines: Sequence[str]
    frames: int = 0


@dataclass(frozen=True, slots=True)
class RaisedException:
    """One exception of a chain.

    Attributes:
        parts: as they were printed.
        title: its last line: class and message.
    """

    parts: tuple[TracebackPart, ...]
    title: str

    @property
    def raised_at(self) -> int | None:
        """Return the index of the user's part nearest to the raise; `None` if there is none."""
        yours = [at for at, part in enumerate(self.parts) if part.what == "yours"]
        # Python prints the last call last, Java first.
        is_python = any(part.lines[0].lstrip().startswith("File ") for part in self.parts if part.frames)
        return (yours[-1] if is_python else yours[0]) if yours else None


def split_traceback(traceback: str, handler: str = "") -> list[RaisedException]:
    """Return the exceptions of a traceback, each one the cause of the next.

    Parameters:
        handler: as for `bridge.deadletters.model.failure_location.find_failure_location`.
    """
    return [
        RaisedException(tuple(_parts(lines, handler)), next((line for line in reversed(lines) if line.strip()), ""))
        for lines in _chain(traceback.splitlines())
        if any(line.strip() for line in lines)
    ]


def _chain(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each exception, the first one first, without the lines between two."""
    begins = 0
    for at in [*(at for at, line in enumerate(lines) if line.strip() in CHAINED), len(lines)]:
        yield list(lines[begins:at])
        begins = at + 1


def _parts(lines: Iterable[str], handler: str) -> Iterator[TracebackPart]:
    """Yield the parts: consecutive frames of other code together, each frame of the user alone."""
    found = [part for part in _frames(lines, handler) if any(line.strip() for line in part.lines)]
    for what, some in groupby(found, key=lambda part: part.what):
        if what == "yours":
            yield from some
            continue
        run = list(some)
        yield TracebackPart(what, [line for part in run for line in part.lines], sum(part.frames for part in run))


def _frames(lines: Iterable[str], handler: str) -> Iterator[TracebackPart]:
    part: TracebackPart | None = None
    for line in lines:
        if is_frame(line):
            if part is not None:
                yield part
            part = TracebackPart("yours" if is_user_frame(line, handler) else "theirs", [line], 1)
        elif part is not None and part.frames and line.startswith("    "):
            # Its line of code, and the markers below that.
            part = part._replace(lines=[*part.lines, line])
        else:
            if part is not None:
                yield part
            part = TracebackPart("said", [line])
    if part is not None:
        yield part


#: The escape character of placeholders: U+001A, which tracebacks hardly have.
_MARK: Final = "\x1a"
_MESSAGE: Final = _MARK + "m"
_ITSELF: Final = _MARK + "s"
#: The separator before a message in Python and Java.
_BEFORE: Final = ": "


def strip_message(traceback: str, message: str) -> str:
    """Return a traceback with a mark for each message at the end of a line.

    Guarantees: `restore_message` reverses it for any two texts.
    """
    marked = traceback.replace(_MARK, _ITSELF)
    said = _BEFORE + message.replace(_MARK, _ITSELF)
    if not message:
        return marked
    marked = marked.replace(f"{said}\n", f"{_BEFORE}{_MESSAGE}\n")
    return marked.removesuffix(said) + _BEFORE + _MESSAGE if marked.endswith(said) else marked


def restore_message(text: str, message: str) -> str:
    """Return the traceback that `strip_message` was given."""
    first, *rest = text.split(_MESSAGE)
    return message.join(part.replace(_ITSELF, _MARK) for part in (first, *rest))
