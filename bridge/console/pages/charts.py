"""Charts as SVG: strips of the last hour and day, bars of counts, and a bar of shares (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from bridge.console import shown_zone
from bridge.console.pages.chart_options import DEFAULT_OPTIONS, WEEK, ChartOptions, ChartRange

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
_DAY: Final = 24 * _HOUR


class Strip(NamedTuple):
    """The chart of one count, or of a level such as the consumer lag.

    Attributes:
        said: the chart in words, for screen readers.
        path: its bars as an SVG path.
        counts: the value of each bar; `None`: it is not known.
        last: the count of the last complete minute or hour, or the last known level.
        leads: whether a bar leads to the dead letters of its time.
        is_level: whether its values are levels, which have no sum.
    """

    name: str
    look: str
    said: str
    path: str
    counts: Sequence[int | None]
    last: int | None
    total: int
    most: int
    leads: bool
    is_level: bool = False

    def scale_path(self, most: int) -> str:
        """Return the path of its bars on the scale of a common maximum."""
        return draw_bars(self.counts, most)


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
        shared: the highest value of the scale that all counts share; `None`: each strip has its own.
    """

    strips: Sequence[Strip]
    marks: Sequence[StripMark]
    ticks: Sequence[tuple[int, str]]
    first: int
    unit: int
    scope: Mapping[str, str]
    shared: int | None = None

    @property
    def wide(self) -> int:
        """Return its width in units."""
        return SLOT_WIDTH * self.unit_count

    @property
    def unit_count(self) -> int:
        """Return the number of bars of each strip."""
        return max((len(strip.counts) for strip in self.strips), default=0)

    def describe_time(self, at: int) -> str:
        """Return the time of a bar, as the script says that of the one under the pointer: `02:59 UTC`."""
        return format_slot(self.first + at * self.unit, self.unit_count, self.unit)

    def describe_bar(self, strip: Strip, at: int) -> str:
        """Return a bar in words, as the script says the one under the pointer: `02:59 UTC: 10`."""
        value = strip.counts[at]
        return f"{self.describe_time(at)}: {'not known' if value is None else f'{value:,}'}"

    def list_rows(self) -> list[tuple[str, list[int | None]]]:
        """Return its values as rows of a table, the latest first: the time, and the value of each strip."""
        slots = reversed(range(self.unit_count))
        return [(self.describe_time(at), [strip.counts[at] for strip in self.strips]) for at in slots]


class ChartLevel(NamedTuple):
    """A level over time, beside the counts: the consumer lag of a topic, the backlog of a handler.

    Attributes:
        values: of the minutes or hours of the chart, the oldest first; `None`: not known.
    """

    name: str
    values: Sequence[int | None]


def build_hour_chart(
    status: Status,
    now: int,
    scope: Mapping[str, str] = NO_SCOPE,
    options: ChartOptions = DEFAULT_OPTIONS,
    level: ChartLevel | None = None,
) -> StripChart | None:
    """Return the chart of the last hour, or a part of it, by the minute; `None` if nothing is known.

    Parameters:
        now: ms since the epoch.
        scope: the filter for what the status was narrowed to.
        level: what else is shown.
    """
    if (counts := status.get("counts")) is None:
        return None
    slots, first = options.minutes.slots, find_first(status, options.minutes, now)
    sums = {what: values[-slots:] for what, values in _sum_counts(counts, "minutes").items()}
    return _build_chart(status, sums, level, first, options.minutes, scope, shared=options.shared)


def build_day_chart(
    status: Status,
    letters: Sequence[int] | None,
    now: int,
    scope: Mapping[str, str] = NO_SCOPE,
    options: ChartOptions = DEFAULT_OPTIONS,
    level: ChartLevel | None = None,
    week: Mapping[str, Sequence[int]] | None = None,
) -> StripChart | None:
    """Return the chart of the last day, or of the last 7 days, by the hour; `None` if nothing is known.

    Parameters:
        now, scope, level: as `build_hour_chart`.
        letters: dead letters of each of the hours; `None`: the database does not respond.
        week: the counts of each of the last 168 hours, for the last 7 days; `None`: Redis does not respond.
    """
    counts = status.get("counts")
    slots, known = options.hours.slots, week if options.hours == WEEK else counts
    sums: dict[str, Sequence[int]] = {} if week is None else {**week}
    if options.hours != WEEK:
        sums = {} if counts is None else {**_sum_counts(counts, "hours")}
    if letters is not None and len(letters) >= slots:
        sums["dead"] = list(letters)[-slots:]
    if not sums:
        return None
    first = find_first(status, options.hours, now)
    return _build_chart(
        status, sums, None if known is None else level, first, options.hours, scope, shared=options.shared
    )


def _build_chart(
    status: Status,
    sums: Mapping[str, Sequence[int]],
    level: ChartLevel | None,
    first: int,
    span: ChartRange,
    scope: Mapping[str, str],
    *,
    shared: bool,
) -> StripChart:
    unit, name = span.milliseconds, span.unit.name.rstrip("s")
    strips = [_build_strip(label, look, sums[what], name) for what, label, look in _STRIPS if what in sums]
    most = max((strip.most for strip in strips), default=0) if shared else None
    if most is not None:
        strips = [strip._replace(path=strip.scale_path(most)) for strip in strips]
    if level is not None:
        strips.append(_build_level(level, name))
    marks = list_marks(status, first, span)
    return StripChart(strips, marks, list_ticks(first, span), first, unit, scope, most)


def list_ticks(first: int, span: ChartRange) -> list[tuple[int, str]]:
    """Return the labels of a time axis by their position in per cent.

    Parameters:
        first: when it begins, ms since the epoch.
    """
    unit, slots = span.milliseconds, span.slots
    if span == WEEK:
        midnights = [at for at in range(slots) if _to_moment(first + at * unit).hour == 0]
        return [(round(at / slots * 100), _format_day(first + at * unit)) for at in midnights[::2]]
    step = slots // (3 if slots < 20 else 4)
    places = [(round(at / slots * 100), at) for at in range(0, slots, step)]
    return [(place, format_clock(first + at * unit)) for place, at in [*places, (99, slots - 1)]]


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


def draw_bars(counts: Sequence[int | None], most: int | None = None) -> str:
    """Return a path with a bar for each count that is not 0, scaled to the highest.

    Parameters:
        most: the highest value of the scale, if that is another.
    """
    most = max((count or 0 for count in counts), default=0) if most is None else most
    return "".join(
        f"M{at * SLOT_WIDTH} {STRIP_HEIGHT}v-{max(_LEAST, round(count / most * STRIP_HEIGHT))}h{_BAR}V{STRIP_HEIGHT}z"
        for at, count in enumerate(counts)
        if count
    )


def find_first(status: Status, span: ChartRange, now: int) -> int:
    """Return when the first slot of a chart begins, by the clock of the process that counted, ms since the epoch.

    Parameters:
        now: ms since the epoch, for a status without counts.
    """
    unit, counts = span.milliseconds, status.get("counts")
    if not counts:
        return (now // unit - span.slots + 1) * unit
    # A status has the last hour and the last day.
    kept = 60 if span.unit.name == "minutes" else 24
    return _parse_ms(counts[0][span.unit.name]["from"]) + (kept - span.slots) * unit


def _build_strip(name: str, look: str, counts: Sequence[int], unit: str) -> Strip:
    total, most = sum(counts), max(counts, default=0)
    said = (
        f"{name} by the {unit}: {total:,} in {len(counts)} {unit}s, at most {most:,} in one, {counts[-1]:,} in this one"
    )
    return Strip(name, look, said, draw_bars(counts), counts, counts[-2], total, most, name == _DEAD)


def _build_level(level: ChartLevel, unit: str) -> Strip:
    known = [value for value in level.values if value is not None]
    last, most, missing = known[-1] if known else None, max(known, default=0), len(level.values) - len(known)
    said = f"{level.name}, the highest of each {unit}: " + (
        f"at most {most:,}, {last:,} at last" if known else "it was never measured"
    )
    # The current minute is measured when it is over.
    said += f", not known for {missing} {unit}s" if known and missing > 1 else ""
    return Strip(level.name, "run", said, draw_bars(level.values), level.values, last, 0, most, False, True)


def _sum_counts(counts: Iterable[Mapping[str, Any]], unit: str) -> dict[str, list[int]]:
    """Return the sums over all handlers and topics."""
    there = list(counts)
    size = 60 if unit == "minutes" else 24
    return {
        what: [sum(each) for each in zip([0] * size, *(found[unit][what] for found in there), strict=True)]
        for what, _, _ in _STRIPS
    }


def list_marks(status: Status, first: int, span: ChartRange) -> list[StripMark]:
    """Return the events within a chart that begins at `first`, the oldest first."""
    unit, count = span.milliseconds, span.slots
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


def format_clock(at: int) -> str:
    """Return the time of day in the shown zone: `02:59`."""
    return f"{_to_moment(at):%H:%M}"


def format_slot(at: int, slots: int, unit: int) -> str:
    """Return the time of a slot, of a chart of several days with its day: `21 Nov, 02:00 UTC`."""
    day = f"{_format_day(at)}, " if slots * unit > _DAY else ""
    return f"{day}{format_clock(at)} {shown_zone.name_zone(at)}"


def _format_day(at: int) -> str:
    return f"{_to_moment(at):%d %b}"


def _to_moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, shown_zone.get_zone())
