"""Pictures of the last hour and day: four strips on one time axis, each with its own scale (pure).

What is drawn is what workers and bridges have counted (`counts` of `bridge status --json`); of a day's dead letters,
what the desk has recorded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

#: What `bridge status --json` answers.
Status = Mapping[str, Any]

#: What is counted, what it is called, and its look.
_STRIPS: Final = (
    ("handled", "Handled", "plain"),
    ("failed", "Attempts failed", "warn"),
    ("dead", "Dead letters", "bad"),
    ("replayed", "Replayed", "run"),
)
#: A strip is as high, and a slot as wide, of which a gap is left between two bars.
HIGH: Final = 100
SLOT: Final = 4
_BAR: Final = 3
#: What is not zero is seen, however small it is beside the most.
_LEAST: Final = 3
_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000


class Strip(NamedTuple):
    """One thing that is counted.

    Attributes:
        said: the same for who does not see it.
        path: its bars, as SVG draws them.
        last: of the last minute or hour that is over.
    """

    name: str
    look: str
    said: str
    path: str
    last: int
    total: int
    most: int


class Mark(NamedTuple):
    """Something that happened meanwhile: where, in the picture's units, what, and when (ms since the epoch)."""

    x: float
    what: str
    at: int


class Picture(NamedTuple):
    """Strips on one time axis.

    Attributes:
        wide: in units.
        ticks: in per cent from the left, what time it is there.
    """

    wide: int
    strips: Sequence[Strip]
    marks: Sequence[Mark]
    ticks: Sequence[tuple[int, str]]


def hour(status: Status, now: int) -> Picture | None:
    """The last hour by the minute; `None`: nothing is known of it.

    Parameters:
        now: ms since the epoch.
    """
    if (counts := status.get("counts")) is None:
        return None
    first = _first(counts, "minutes", (now // _MINUTE - 59) * _MINUTE)
    ticks = [(at, _clock(first + minute * _MINUTE)) for at, minute in ((0, 0), (25, 15), (50, 30), (75, 45), (99, 59))]
    return Picture(60 * SLOT, _strips(_sums(counts, "minutes"), "minute"), _marks(status, first, _MINUTE, 60), ticks)


def day(status: Status, letters: Sequence[int] | None, now: int) -> Picture | None:
    """The last day by the hour; `None`: nothing is known of it.

    Parameters:
        letters: recorded in each of the 24 hours; `None`: the database does not answer.
    """
    counts = status.get("counts")
    sums = {} if counts is None else _sums(counts, "hours")
    if letters is not None:
        sums["dead"] = list(letters)
    if not sums:
        return None
    first = _first(counts or (), "hours", (now // _HOUR - 23) * _HOUR)
    ticks = [(at, _clock(first + hours * _HOUR)) for at, hours in ((0, 0), (25, 6), (50, 12), (75, 18), (99, 23))]
    return Picture(24 * SLOT, _strips(sums, "hour"), _marks(status, first, _HOUR, 24), ticks)


def of_handler(status: Status, topic: str, handler: str) -> Strip | None:
    """What a handler has handled of a topic, by the minute; `None`: not known."""
    for each in status.get("counts") or ():
        if (each["topic"], each["handler"]) == (topic, handler):
            return _strip("Handled", "plain", each["minutes"]["handled"], "minute")
    return None


def only(status: Status, topic: str | None = None, handler: str | None = None) -> Status:
    """The status with the counts and halts of one topic, or the counts and versions of one handler, alone."""
    counts, workers = status.get("counts"), status.get("workers") or {}
    kept = [each for each in counts or () if topic in (None, each["topic"]) and handler in (None, each["handler"])]
    halted = {name: halt for name, halt in status.get("halted", {}).items() if topic in (None, name)}
    return {
        **status,
        "counts": None if counts is None else kept,
        "halted": {} if handler else halted,
        "workers": {name: _running(each, handler) for name, each in workers.items()},
    }


def _running(worker: Status, handler: str | None) -> Status:
    """A worker with the version of one handler alone."""
    versions = worker.get("handler_versions", {}).items()
    return {**worker, "handler_versions": {name: each for name, each in versions if handler in (None, name)}}


def bars(counts: Sequence[int]) -> str:
    """A path with a bar for each count that is not 0, the highest as high as the picture."""
    most = max(counts, default=0)
    return "".join(
        f"M{at * SLOT} {HIGH}v-{max(_LEAST, round(count / most * HIGH))}h{_BAR}V{HIGH}z"
        for at, count in enumerate(counts)
        if count
    )


def _first(counts: Sequence[Mapping[str, Any]], unit: str, otherwise: int) -> int:
    """When the first minute, or hour, began, by the clock of who counted them."""
    return _ms(counts[0][unit]["from"]) if counts else otherwise


def _strips(sums: Mapping[str, Sequence[int]], unit: str) -> list[Strip]:
    return [_strip(name, look, sums[what], unit) for what, name, look in _STRIPS if what in sums]


def _strip(name: str, look: str, counts: Sequence[int], unit: str) -> Strip:
    total, most = sum(counts), max(counts, default=0)
    said = (
        f"{name} by the {unit}: {total:,} in {len(counts)} {unit}s, at most {most:,} in one, {counts[-1]:,} in this one"
    )
    return Strip(name, look, said, bars(counts), counts[-2], total, most)


def _sums(counts: Iterable[Mapping[str, Any]], unit: str) -> dict[str, list[int]]:
    """What all handlers did of all topics."""
    there = list(counts)
    size = 60 if unit == "minutes" else 24
    return {
        what: [sum(each) for each in zip([0] * size, *(found[unit][what] for found in there), strict=True)]
        for what, _, _ in _STRIPS
    }


def _marks(status: Status, first: int, unit: int, count: int) -> list[Mark]:
    """What happened within the picture, the first first."""
    happened = [*_halts(status), *_versions(status)]
    return sorted(
        Mark(round((at - first) / unit * SLOT, 1), what, at) for at, what in happened if 0 <= at - first < unit * count
    )


def _halts(status: Status) -> Iterator[tuple[int, str]]:
    for topic, halt in status.get("halted", {}).items():
        yield _ms(halt["since"]), f"{topic} halted"


def _versions(status: Status) -> Iterator[tuple[int, str]]:
    """When the first living worker of each version of handlers came up."""
    began: dict[str, int] = {}
    for worker in (status.get("workers") or {}).values():
        if "started" in worker:
            at = _ms(worker["started"])
            for version in {*worker.get("handler_versions", {}).values()} - {""}:
                began[version] = min(at, began.get(version, at))
    yield from ((at, f"{version} came up") for version, at in began.items())


def _ms(iso: str) -> int:
    return int(datetime.fromisoformat(iso).timestamp() * 1000)


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}"
