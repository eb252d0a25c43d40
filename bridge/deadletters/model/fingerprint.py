"""The fingerprint of a cause, the second level of a failure group, and the traceback that it is computed from, in
parts (pure). A failure group is a handler, an exception class and a function. A cause adds the line that raised,
the chain of exceptions before it, and the message without its variable parts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from bridge.deadletters.model.failure_location import CHAINED, READ, is_frame, is_user_frame
from bridge.deadletters.model.stored_letter import FailureGroup, compute_digest


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


#: Most characters of a message that are read, and of the normalised message.
_READ_OF_MESSAGE: Final = 4_000
_LONGEST_MESSAGE: Final = 300
#: Most exceptions of a chain that count: those nearest to the last one.
_LONGEST_CHAIN: Final = 8

#: The variable parts of messages, in the order of their replacement.
_VARYING: Final = (
    (re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)"""), "<text>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), "<address>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"[0-9]+(?:[.,:][0-9]+)*"), "<number>"),
    (re.compile(r"\s+"), " "),
)
_PYTHON_LINE: Final = re.compile(r'", line ([0-9]+)')
_JAVA_LINE: Final = re.compile(r":([0-9]+)\)\s*$")
_JAVA_CAUSE: Final = "Caused by: "


def compute_cause_fingerprint(group: FailureGroup, traceback: str, message: str) -> str:
    """Return the id of the cause within its failure group: 12 hexadecimal digits, the same on every machine.

    Parameters:
        traceback: as Python or a JVM prints it, or "".
    """
    line, chain = _line_and_chain(strip_message(traceback, message), group.handler)
    return compute_digest(*group, line, normalise_message(message), *chain).hex()[:12]


def normalise_message(message: str) -> str:
    """Return a message with a placeholder for each UUID, quoted text, address, hexadecimal number and number."""
    text = message[:_READ_OF_MESSAGE]
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return text.strip()[:_LONGEST_MESSAGE]


@lru_cache(maxsize=256)
def _line_and_chain(traceback: str, handler: str) -> tuple[str, tuple[str, ...]]:
    """Return line and chain of a traceback without its message; cached, because letters of one cause share it."""
    text = traceback[-READ:]
    causes = [line.removeprefix(_JAVA_CAUSE) for line in text.splitlines() if line.startswith(_JAVA_CAUSE)]
    if causes and not _PYTHON_LINE.search(text):
        exceptions, chain = split_traceback(text.rpartition(f"\n{_JAVA_CAUSE}")[2], handler), causes
    else:
        exceptions = split_traceback(text, handler)
        chain = [_find_title(each) for each in exceptions[:-1]]
    return _find_line(exceptions), tuple(map(normalise_message, chain[-_LONGEST_CHAIN:]))


def _find_line(exceptions: list[RaisedException]) -> str:
    """Return the line number of the user's frame nearest to the raise of the last exception; else ""."""
    for each in reversed(exceptions):
        if each.raised_at is not None:
            frame = each.parts[each.raised_at].lines[0]
            found = _PYTHON_LINE.search(frame) or _JAVA_LINE.search(frame)
            return found[1] if found else ""
    return ""


def _find_title(exception: RaisedException) -> str:
    """Return class and first line of the message, which follow the last frame."""
    last = max((at for at, part in enumerate(exception.parts) if part.frames), default=-1)
    behind = exception.parts[last + 1 :]
    return behind[0].lines[0] if behind else ""
