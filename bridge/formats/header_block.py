"""The block of Kafka headers that the bridge adds behind the producer's, as ASCII text, and takes off again (pure).

The block begins with `origin_topic`, always and once.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from bridge.formats.delivery import Header

RecordHeaders = list[tuple[str, str | bytes | None]]

#: With this each block of ours begins.
FIRST_HEADER: Final = "origin_topic"
#: Most digits of a number that is believed; Kafka's offsets and times in milliseconds have 19 at the most.
_DIGITS: Final = 19


def append_block(theirs: Sequence[Header], ours: Mapping[str, str]) -> RecordHeaders:
    """The producer's headers byte for byte, and behind them ours, of which the first is `origin_topic`."""
    return [*theirs, *[(name, value.encode("ascii", "backslashreplace")) for name, value in ours.items()]]


def split_block(headers: Sequence[Header], names: Collection[str]) -> tuple[tuple[Header, ...], dict[str, str]]:
    """The producer's headers, and ours as text; of a name that occurs twice the last counts.

    Parameters:
        names: of ours.
    """
    begin = next((at for at in range(len(headers) - 1, -1, -1) if headers[at][0] == FIRST_HEADER), len(headers))
    behind = headers[begin:]
    ours = {name: (value or b"").decode("utf-8", "replace") for name, value in behind if name in names}
    return (*headers[:begin], *(header for header in behind if header[0] not in names)), ours


def read_number(found: Mapping[str, Any], name: str) -> int:
    """A count or a time in ours; 0 where it is none."""
    text = found.get(name, "")
    return int(text) if _is_number(text) else 0


def require_number(found: Mapping[str, str], name: str) -> int:
    """The same for one without which the rest means nothing.

    Raises:
        ValueError: it is none.
    """
    text = found.get(name, "")
    if not _is_number(text):
        raise ValueError(f"{name} is no number: {text[:40]!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdecimal()
