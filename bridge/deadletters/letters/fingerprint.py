"""The fingerprint of a cause: the second level of a failure group (pure).

A failure group is a handler, an exception class and a function. One function may fail for several causes, so a cause
adds three facts: the line that raised, the chain of exceptions before it, and the message without what varies.
"""

import re
from functools import lru_cache
from typing import Final

from bridge.deadletters.letters.frames import Raised, raised
from bridge.deadletters.letters.letter import Group, digest
from bridge.deadletters.letters.place import READ
from bridge.deadletters.letters.tracebacks import without_message

#: Characters of a message that are read, and of the normalised message that count.
_READ_OF_MESSAGE: Final = 4_000
_LONGEST_MESSAGE: Final = 300
#: Exceptions of a chain that count: those nearest to the last one.
_LONGEST_CHAIN: Final = 8

#: What varies between two messages of one cause, in the order in which it is replaced.
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


def cause_fingerprint(group: Group, traceback: str, message: str) -> str:
    """Return the id of the cause within its failure group: 12 hexadecimal digits, the same on every machine.

    Parameters:
        traceback: as Python or a JVM prints it, or "".
    """
    line, chain = _line_and_chain(without_message(traceback, message), group.handler)
    return digest(*group, line, normalised(message), *chain).hex()[:12]


def normalised(message: str) -> str:
    """Return a message with a placeholder for each UUID, quoted text, address, hexadecimal number and number."""
    text = message[:_READ_OF_MESSAGE]
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return text.strip()[:_LONGEST_MESSAGE]


@lru_cache(maxsize=256)
def _line_and_chain(traceback: str, handler: str) -> tuple[str, tuple[str, ...]]:
    """Read a traceback without its message: letters of one cause have the same, so it is read once."""
    text = traceback[-READ:]
    causes = [line.removeprefix(_JAVA_CAUSE) for line in text.splitlines() if line.startswith(_JAVA_CAUSE)]
    if causes and not _PYTHON_LINE.search(text):
        exceptions, chain = raised(text.rpartition(f"\n{_JAVA_CAUSE}")[2], handler), causes
    else:
        exceptions = raised(text, handler)
        chain = [_title(each) for each in exceptions[:-1]]
    return _line(exceptions), tuple(map(normalised, chain[-_LONGEST_CHAIN:]))


def _line(exceptions: list[Raised]) -> str:
    """The line number of the user's frame that is nearest to where the last exception was raised; else ""."""
    for each in reversed(exceptions):
        if each.raised_at is not None:
            frame = each.parts[each.raised_at].lines[0]
            found = _PYTHON_LINE.search(frame) or _JAVA_LINE.search(frame)
            return found[1] if found else ""
    return ""


def _title(exception: Raised) -> str:
    """Class and first line of the message, which stand behind the last frame."""
    last = max((at for at, part in enumerate(exception.parts) if part.frames), default=-1)
    behind = exception.parts[last + 1 :]
    return behind[0].lines[0] if behind else ""
