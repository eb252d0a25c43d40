"""Records beside each other: the parts of many messages in the header of a Celery message, written and read (pure).

All keys are one text, all values another, in base64 and told apart by their sizes, so that a batch costs little more to
write and to read than one message.
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from bridge.records.as_text import to_headers, to_pairs, to_text
from bridge.records.message import Headers
from bridge.records.more import with_dead
from bridge.records.row import Row

#: Offset, timestamp, key, value, headers, and what else is known of a delivery.
Parts: TypeAlias = tuple[int, int | None, bytes | None, bytes | None, Headers, Mapping[str, Any]]


def columns_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Records beside each other, as JSON-able data."""
    offsets, timestamps, keys, values, headers, dead, more = zip(*rows, strict=True)
    columns = {
        "offsets": _runs(offsets),
        "timestamps": timestamps,
        "keys": _joined(keys),
        "values": _joined(values),
    }
    if any(headers):
        columns["headers"] = {str(at): to_pairs(found) for at, found in enumerate(headers) if found}
    if any(dead) or any(more):
        besides = enumerate(map(with_dead, dead, more))
        columns["more"] = {str(at): found for at, found in besides if found}
    return columns


def _runs(offsets: Sequence[int]) -> list[list[int]]:
    """Each first offset of a run, and how many follow one another."""
    first, last = offsets[0], offsets[-1]
    if last - first == len(offsets) - 1:
        return [[first, len(offsets)]]
    runs = [[first, 1]]
    for before, offset in pairwise(offsets):
        if offset == before + 1:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return runs


def _joined(parts: Sequence[bytes | None]) -> dict[str, Any] | None:
    """All of a column in one text, and the size of each; `None` where no message has any."""
    if None not in parts:
        return {"sizes": list(map(len, parts)), "bytes": to_text(b"".join(parts))}  # type: ignore[arg-type]
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return {"sizes": [None if part is None else len(part) for part in parts], "bytes": to_text(b"".join(there))}


def from_columns(columns: Mapping[str, Any]) -> Iterable[Parts]:
    """What `columns_of` was given, one by one.

    Raises:
        ValueError, KeyError, TypeError: they are no such columns.
    """
    timestamps = [None if found is None else int(found) for found in columns["timestamps"]]
    count = len(timestamps)
    headers: list[Headers] = [()] * count
    for at, found in (columns.get("headers") or {}).items():
        headers[_at(at, count)] = to_headers(found)
    more: list[Mapping[str, Any]] = [{}] * count
    for at, found in (columns.get("more") or {}).items():
        more[_at(at, count)] = found
    return zip(
        offsets_in(columns, count),
        timestamps,
        _apart(columns["keys"], count),
        _apart(columns["values"], count),
        headers,
        more,
        strict=True,
    )


def offsets_in(columns: Mapping[str, Any], count: int) -> Sequence[int]:
    """Their offsets alone.

    Raises:
        ValueError: they are not so many.
    """
    runs = [(int(first), int(length)) for first, length in columns["offsets"]]
    # Before they are written out: what is broken must not fill the memory.
    if sum(length for _, length in runs) != count or any(length < 1 for _, length in runs):
        raise ValueError(f"its offsets are not {count}")
    if len(runs) == 1:
        return range(runs[0][0], runs[0][0] + count)
    return [offset for first, length in runs for offset in range(first, first + length)]


def _apart(column: Mapping[str, Any] | None, count: int) -> Sequence[bytes | None]:
    if column is None:
        return [None] * count
    sizes, joined = column["sizes"], b64decode(column["bytes"], validate=True)
    ends = [0, *accumulate(size or 0 for size in sizes)]
    if len(sizes) != count or ends[-1] != len(joined) or ends != sorted(ends):
        raise ValueError("its sizes are not those of its bytes")
    return [
        None if size is None else joined[start:end] for size, (start, end) in zip(sizes, pairwise(ends), strict=True)
    ]


def _at(name: str, count: int) -> int:
    if not 0 <= int(name) < count:
        raise ValueError(f"it has no message {name}")
    return int(name)
