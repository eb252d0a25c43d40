"""Charts as SVG: strips of the last hour and day, bars of counts, and a bar of shares (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from bridge.console import shown_zone

#: The chart of hours: a slot for each hour, with a gap between two bars.
BARS_HEIGHT: Final = 24.0
_BARS_WIDTH: Final = 104.0
_GAP: Final = 0.8
#: The least height: a count that is not zero stays visible.
_LEAST_BAR: Final = 1.0


class CountBar(NamedTuple):
    """A bar of a chart that is 104 wide and 24 high."""

    x: float
    y: float
    width: float
    height: float


class BarShare(NamedTuple):
    """A part of a bar, in per cent."""

    look: str
    x: float
    width: float


def build_bars(counts: Sequence[int]) -> list[CountBar]:
    """Return a bar for each count that is not 0, scaled to the highest."""
    most = max(counts, default=0)
    slot = _BARS_WIDTH / max(1, len(counts))
    found = []
    for at, count in enumerate(counts):
        if count:
            height = max(_LEAST_BAR, count / most * (BARS_HEIGHT - 1))
            found.append(
                CountBar(round(at * slot, 1), round(BARS_HEIGHT - height, 1), round(slot - _GAP, 1), round(height, 1))
            )
    return found


def describe_hours(counts: Sequence[int]) -> str:
    """Return the chart in words: the last six hours by number, the earlier ones by their maximum."""
    before, last = counts[:-6], counts[-6:]
    said = f"at most {max(before):,} an hour before, then " if any(before) else "none before, then "
    return f"Failures an hour: {said}{', '.join(f'{count:,}' for count in last)}"


def build_shares(counts: Mapping[str, int]) -> list[BarShare]:
    """Return the parts of a bar in order, by look; without empty ones."""
    total = sum(counts.values())
    found, at = [], 0.0
    for look, count in counts.items():
        if count and total:
            width = count / total * 100
            found.append(BarShare(look, round(at, 2), round(width, 2)))
            at += width
    return found


#: The data of `bridge status --json`.
Status = Mapping[str, Any]

#: The filter of a chart of everything.
NO_SCOPE: Final[Mapping[str, str]] = {}
_DEAD: Final = "Dead letters"
#: The counts, their labels and their looks.
_STRIPS: Final = (
    ("handled", "Handled", "plain"),
    ("failed", "Attempts failed", "warn"),
    ("dead", _DEAD, "bad"),
    ("replayed", "Replayed", "run"),
)
#: The height of a strip, the width of a slot, and the gap between two bars.
STRIP_HEIGHT: Final = 100
SLOT_WIDTH: Final = 4
_BAR: Final = 3
#: The least height: a count that is not zero stays visible.
_LEAST: Final = 3
_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000


class Strip(NamedTuple):
    """The chart of one count.

    Attributes:
        said: the chart in words, for screen readers.
        path: its bars as an SVG path.
        counts: the count of each bar.
        last: the count of the last complete minute or hour.
        leads: whether a bar leads to the dead letters of its time.
    """

    name: str
    look: str
    said: str
    path: str
    counts: Sequence[int]
    last: int
    total: int
    most: int
    leads: bool


class StripMark(NamedTuple):
    """An event on the time axis: its position, its words and its time (ms since the epoch)."""

    x: float
    what: str
    at: int


class StripChart(NamedTuple):
    """Strips on a common time axis.

    Attributes:
        ticks: the time labels, by their position in per cent.
        first: when the first bar begins, ms since the epoch.
        unit: ms of a bar.
        scope: the filter of the letters that are counted: a topic, or a handler.
    """

    strips: Sequence[Strip]
    marks: Sequence[StripMark]
    ticks: Sequence[tuple[int, str]]
    first: int
    unit: int
    scope: Mapping[str, str]

    @property
    def wide(self) -> int:
        """Return its width in units."""
        return SLOT_WIDTH * self.unit_count

    @property
    def unit_count(self) -> int:
        """Return the number of bars of each strip."""
        return max((len(strip.counts) for strip in self.strips), default=0)

    def describe_bar(self, strip: Strip, at: int) -> str:
        """Return a bar in words, as the script says the one under the pointer: `02:59 UTC: 10`."""
        begin = self.first + at * self.unit
        return f"{_format_clock(begin)} {shown_zone.name_zone(begin)}: {strip.counts[at]:,}"


def build_hour_chart(status: Status, now: int, scope: Mapping[str, str] = NO_SCOPE) -> StripChart | None:
    """Return the chart of the last hour by the minute; `None` if nothing is known.

    Parameters:
        now: ms since the epoch.
        scope: the filter for what the status was narrowed to.
    """
    if (counts := status.get("counts")) is None:
        return None
    first = _find_start(counts, "minutes", (now // _MINUTE - 59) * _MINUTE)
    ticks = [
        (at, _format_clock(first + minute * _MINUTE)) for at, minute in ((0, 0), (25, 15), (50, 30), (75, 45), (99, 59))
    ]
    strips = _build_strips(_sum_counts(counts, "minutes"), "minute")
    return StripChart(strips, _list_marks(status, first, _MINUTE, 60), ticks, first, _MINUTE, scope)


def build_day_chart(
    status: Status, letters: Sequence[int] | None, now: int, scope: Mapping[str, str] = NO_SCOPE
) -> StripChart | None:
    """Return the chart of the last day by the hour; `None` if nothing is known.

    Parameters:
        now, scope: as `build_hour_chart`.
        letters: dead letters of each of the 24 hours; `None`: the database does not respond.
    """
    counts = status.get("counts")
    sums = {} if counts is None else _sum_counts(counts, "hours")
    if letters is not None:
        sums["dead"] = list(letters)
    if not sums:
        return None
    first = _find_start(counts or (), "hours", (now // _HOUR - 23) * _HOUR)
    ticks = [
        (at, _format_clock(first + hours * _HOUR)) for at, hours in ((0, 0), (25, 6), (50, 12), (75, 18), (99, 23))
    ]
    marks = _list_marks(status, first, _HOUR, 24)
    return StripChart(_build_strips(sums, "hour"), marks, ticks, first, _HOUR, scope)


def build_handler_strip(status: Status, topic: str, handler: str) -> Strip | None:
    """Return a strip of the deliveries of a topic that a handler handled, by the minute; `None` if unknown."""
    for each in status.get("counts") or ():
        if (each["topic"], each["handler"]) == (topic, handler):
            return _build_strip("Handled", "plain", each["minutes"]["handled"], "minute")
    return None


def narrow_status(status: Status, topic: str | None = None, handler: str | None = None) -> Status:
    """Return the status with the counts and halts of one topic only, or those of one handler with its versions."""
    counts, workers = status.get("counts"), status.get("workers") or {}
    kept = [each for each in counts or () if topic in (None, each["topic"]) and handler in (None, each["handler"])]
    halted = {name: halt for name, halt in status.get("halted", {}).items() if topic in (None, name)}
    return {
        **status,
        "counts": None if counts is None else kept,
        "halted": {} if handler else halted,
        "workers": {name: _narrow_worker(each, handler) for name, each in workers.items()},
    }


def _narrow_worker(worker: Status, handler: str | None) -> Status:
    """Return a worker with the version of one handler only."""
    versions = worker.get("handler_versions", {}).items()
    return {**worker, "handler_versions": {name: each for name, each in versions if handler in (None, name)}}


def draw_bars(counts: Sequence[int]) -> str:
    """Return a path with a bar for each count that is not 0, scaled to the highest."""
    most = max(counts, default=0)
    return "".join(
        f"M{at * SLOT_WIDTH} {STRIP_HEIGHT}v-{max(_LEAST, round(count / most * STRIP_HEIGHT))}h{_BAR}V{STRIP_HEIGHT}z"
        for at, count in enumerate(counts)
        if count
    )


def _find_start(counts: Sequence[Mapping[str, Any]], unit: str, otherwise: int) -> int:
    """Return when the first minute or hour began, by the clock of the process that counted."""
    return _parse_ms(counts[0][unit]["from"]) if counts else otherwise


def _build_strips(sums: Mapping[str, Sequence[int]], unit: str) -> list[Strip]:
    return [_build_strip(name, look, sums[what], unit) for what, name, look in _STRIPS if what in sums]


def _build_strip(name: str, look: str, counts: Sequence[int], unit: str) -> Strip:
    total, most = sum(counts), max(counts, default=0)
    said = (
        f"{name} by the {unit}: {total:,} in {len(counts)} {unit}s, at most {most:,} in one, {counts[-1]:,} in this one"
    )
    return Strip(name, look, said, draw_bars(counts), counts, counts[-2], total, most, name == _DEAD)


def _sum_counts(counts: Iterable[Mapping[str, Any]], unit: str) -> dict[str, list[int]]:
    """Return the sums over all handlers and topics."""
    there = list(counts)
    size = 60 if unit == "minutes" else 24
    return {
        what: [sum(each) for each in zip([0] * size, *(found[unit][what] for found in there), strict=True)]
        for what, _, _ in _STRIPS
    }


def _list_marks(status: Status, first: int, unit: int, count: int) -> list[StripMark]:
    """Return the events within the chart, oldest first."""
    happened = [*_list_halts(status), *_list_versions(status)]
    return sorted(
        StripMark(round((at - first) / unit * SLOT_WIDTH, 1), what, at)
        for at, what in happened
        if 0 <= at - first < unit * count
    )


def _list_halts(status: Status) -> Iterator[tuple[int, str]]:
    for topic, halt in status.get("halted", {}).items():
        yield _parse_ms(halt["since"]), f"{topic} halted"


def _list_versions(status: Status) -> Iterator[tuple[int, str]]:
    """Return when the first living worker of each handler version started."""
    began: dict[str, int] = {}
    for worker in (status.get("workers") or {}).values():
        if "started" in worker:
            at = _parse_ms(worker["started"])
            for version in {*worker.get("handler_versions", {}).values()} - {""}:
                began[version] = min(at, began.get(version, at))
    yield from ((at, f"{version} came up") for version, at in began.items())


def _parse_ms(iso: str) -> int:
    return int(datetime.fromisoformat(iso).timestamp() * 1000)


def _format_clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, shown_zone.get_zone()):%H:%M}"
