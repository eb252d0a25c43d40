"""The difference between two values for people (pure)."""

from collections.abc import Sequence
from difflib import unified_diff
from itertools import chain, zip_longest
from typing import Final

from bridge.deadletters.model import exact_json
from bridge.errors import NoJson

#: Most lines of a difference, and most characters of a line.
LINES: Final = 200
WIDTH: Final = 500
#: Most pairs of lines that are compared, at a tenth of a second of a core for each million: values that differ
#: everywhere would take minutes.
PAIRS: Final = 4_000_000
#: Lines of context around a change; characters before what differs in a long line; bytes that are shown of no text.
_AROUND: Final = 3
_BESIDE: Final = 60
_BYTES: Final = 16


def diff_values(before: bytes | None, after: bytes | None) -> str:
    """Return a unified diff: of JSON by members, of other texts by lines, else of the sizes. Its lines end with `\\n`,
    and may have other separators in them.

    It is cut at `LINES`, with a note. Only the lines between the first and the last change are compared; if these are
    too many, line by line, or else only the sizes.
    """
    old, new = _split_lines(before), _split_lines(after)
    if old is None or new is None or (old == new == [] and before != after):
        old, new = _describe_bytes(before, after)
    compared = _compare_lines(old, new)
    if compared is None:
        compared = _write_unified(*_describe_bytes(before, after))
    found = _cut_lines(compared)
    more = len(found) - LINES
    return "\n".join([*found[:LINES], f"… {more} more lines"] if more > 0 else found)


def _cut_lines(lines: Sequence[str]) -> list[str]:
    """Return lines of a difference of `WIDTH` characters at most; of pairs what differs is within."""
    found = [*lines[:2]]
    old: list[str] = []
    new: list[str] = []
    for line in [*lines[2:], ""]:
        if line[:1] in ("-", "+"):
            (old if line[0] == "-" else new).append(line)
            continue
        begins = [_find_begin(*pair) for pair in zip_longest(old, new, fillvalue="")]
        for some in (old, new):
            found += [_cut_line(each, begin) for each, begin in zip(some, begins, strict=False)]
        found.append(_cut_line(line, 0))
        old, new = [], []
    return found[:-1]


def _find_begin(old: str, new: str) -> int:
    """Return where two lines are shown from: a little before what differs."""
    if max(len(old), len(new)) <= WIDTH:
        return 0
    pairs = enumerate(zip(old[1:], new[1:], strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)) - 1)
    return 0 if same < WIDTH - _BESIDE else same - _BESIDE


def _cut_line(line: str, begin: int) -> str:
    if begin:
        line = f"{line[:1]}… {begin:,} characters … {line[1 + begin :]}"
    return line[:WIDTH]


def _compare_lines(old: Sequence[str], new: Sequence[str]) -> list[str] | None:
    """Return the unified diff of lines; `None` if they are too long and not equally many."""
    if len(old) * len(new) > PAIRS:
        old, new = _trim_equal_lines(old, new)
    if len(old) * len(new) <= PAIRS:
        return _write_unified(old, new)
    if len(old) != len(new):
        return None
    pairs = ((at, *pair) for at, pair in enumerate(zip(old, new, strict=True), 1) if pair[0] != pair[1])
    lines = ((f"@@ -{at} +{at} @@", f"-{was}", f"+{is_}") for at, was, is_ in pairs)
    return ["--- before", "+++ after", *chain.from_iterable(lines)]


def _write_unified(old: Sequence[str], new: Sequence[str]) -> list[str]:
    return [*unified_diff(old, new, "before", "after", lineterm="")]


def _trim_equal_lines(old: Sequence[str], new: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines without the common ones at the begin and the end."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    first, left = max(0, head - _AROUND), max(0, tail - _AROUND)
    return old[first : len(old) - left], new[first : len(new) - left]


def count_changes(found: str) -> int:
    """Return the number of changed places of a diff: changed lines in a row count in pairs."""
    count = old = new = 0
    for line in [*found.split("\n")[2:], ""]:
        if line[:1] in ("-", "+"):
            old, new = old + (line[0] == "-"), new + (line[0] == "+")
        else:
            count, old, new = count + max(old, new), 0, 0
    return count


def _split_lines(value: bytes | None) -> list[str] | None:
    """Return a value as lines of text; `None` if it is no text."""
    if value is None:
        return []
    try:
        return exact_json.write_json_lines(exact_json.parse_json(value))
    except (NoJson, RecursionError):
        pass
    try:
        return value.decode().splitlines()
    except UnicodeDecodeError:
        return None


def _describe_bytes(before: bytes | None, after: bytes | None) -> tuple[list[str], list[str]]:
    """Return a line for each of two values that are not compared by lines; of one size, with the bytes that differ."""
    old, new = _describe_size(before), _describe_size(after)
    if old != new or before is None or after is None or before == after:
        return [f"({old})"], [f"({new})"]
    at = next(number for number, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
    return [f"({old}, {_describe_part(before, at)})"], [f"({new}, {_describe_part(after, at)})"]


def _describe_part(value: bytes, at: int) -> str:
    more = "…" if at + _BYTES < len(value) else ""
    return f"0x{value[at : at + _BYTES].hex()}{more} from byte {at:,} on"


def _describe_size(value: bytes | None) -> str:
    return "a tombstone" if value is None else f"{len(value):,} bytes"
