"""Failure groups and their causes (pure). Letters are of one group if the same handler failed with the same exception
class at the same location. A cause is the level below: it adds the line that raised, the chain of exceptions before
it, and the message without its variable parts.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from bridge.deadletters.model.digest import compute_digest
from bridge.deadletters.model.failure_location import READ, find_failure_location
from bridge.deadletters.model.traceback_parts import RaisedException, split_traceback, strip_message


class FailureGroup(NamedTuple):
    """A group of equal failures.

    Attributes:
        place: the first frame of the user's code that raised it, without a line number: `orders/bank.py:pay`.
    """

    handler: str
    error_class: str
    place: str

    @property
    def digest(self) -> bytes:
        """Return the key in the database."""
        return compute_digest(*self)


def find_failure_group(handler: str, error_class: str, traceback: str, message: str) -> FailureGroup:
    """Return the group of a failure.

    Parameters:
        traceback: as Python or a JVM prints it, or "".
        message: of the exception; where the traceback repeats it, it says nothing about the location.
    """
    return FailureGroup(handler, error_class, _find_location(strip_message(traceback, message), handler))


@lru_cache(maxsize=256)
def _find_location(traceback: str, handler: str) -> str:
    """Return the location of a traceback without its message; cached, because letters of one group share it."""
    return find_failure_location(traceback, handler)


#: Most characters of a message that are read, and of the normalised message.
_READ_OF_MESSAGE: Final = 4_000
_LONGEST_MESSAGE: Final = 300
#: Most exceptions of a chain that count: those nearest to the last one.
_LONGEST_CHAIN: Final = 8

#: The variable parts of messages, in the order of their replacement.
_VARYING: Final = (
    # pydantic quotes the value that it refuses.
    (re.compile(r"input_value=.*?, input_type=", re.DOTALL), "input_value=<value>, input_type="),
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


#: What a handler's model refuses (tasks/declaration/value_codec.py), and what pydantic says by itself.
_VALUE_FAULTS: Final = re.compile(r"[0-9]+ fault\(s\) in the value: ")
_VALIDATION_ERRORS: Final = re.compile(r"[0-9]+ validation errors? for .+\n")
_REFUSED_FIELD: Final = re.compile(r"^(\S.*)\n  (.+?)(?: \[type=.*)?$", re.MULTILINE)


def describe_cause(message: str) -> str:
    """Return a cause in a line, by the message of one of its failures: the fields that do not validate, and why; else
    the message itself.
    """
    text = _VALUE_FAULTS.sub("", message[:_READ_OF_MESSAGE], count=1)
    if (begin := _VALIDATION_ERRORS.match(text)) and (fields := _REFUSED_FIELD.findall(text, begin.end())):
        text = "; ".join(f"{field}: {why}" for field, why in fields)
    return " ".join(text.split())


@lru_cache(maxsize=256)
def _line_and_chain(traceback: str, handler: str) -> tuple[str, tuple[str, ...]]:
    """Return line and chain of a traceback without its message; cached, because letters of one cause share it."""
    text = traceback[-READ:]
    causes = [line.removeprefix(_JAVA_CAUSE) for line in text.splitlines() if line.startswith(_JAVA_CAUSE)]
    if causes and not _PYTHON_LINE.search(text):
        exceptions, chain = split_traceback(text.rpartition(f"\n{_JAVA_CAUSE}")[2], handler), causes
    else:
        exceptions = split_traceback(text, handler)
        chain = [_find_title(exception) for exception in exceptions[:-1]]
    return _find_line(exceptions), tuple(map(normalise_message, chain[-_LONGEST_CHAIN:]))


def _find_line(exceptions: list[RaisedException]) -> str:
    """Return the line number of the user's frame nearest to the raise of the last exception; else ""."""
    for exception in reversed(exceptions):
        if exception.raised_at is not None:
            frame = exception.parts[exception.raised_at].lines[0]
            found = _PYTHON_LINE.search(frame) or _JAVA_LINE.search(frame)
            return found[1] if found else ""
    return ""


def _find_title(exception: RaisedException) -> str:
    """Return class and first line of the message, which follow the last frame."""
    last = max((at for at, part in enumerate(exception.parts) if part.frames), default=-1)
    behind = exception.parts[last + 1 :]
    return behind[0].lines[0] if behind else ""
