"""The charts of how long runs of a handler took: percentiles over time, and a histogram (pure)."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final, NamedTuple

from bridge.console.pages.chart_options import ChartRange
from bridge.console.pages.charts import SLOT_WIDTH, StripMark, draw_bars, format_slot, list_ticks
from bridge.ledger.duration_histogram import DURATION_BOUNDS, add_up_buckets, find_percentile

#: The percentiles, with the looks of their lines.
PERCENTILES: Final = ((0.5, "p50", "plain"), (0.95, "p95", "warn"), (0.99, "p99", "bad"))
#: The lowest duration of the axis, in seconds: shorter ones are drawn there.
_LEAST: Final = 1e-4
#: How many labels the axis of the histogram has at most.
_LABELS: Final = 5


class PercentileLine(NamedTuple):
    """The line of a percentile: its path, and its value in the whole range."""

    name: str
    look: str
    path: str
    value: str


class DurationChart(NamedTuple):
    """The percentiles of each minute or hour, on a logarithmic axis.

    Attributes:
        sentence: the percentiles of the whole range, in words.
        axis: the labels of durations, by their position from the top in per cent.
        said: each minute or hour in words, as the script says the one under the pointer.
        rows: each minute or hour with runs, the latest first: its time, the number of runs, and the percentiles.
    """

    span: ChartRange
    sentence: str
    runs: int
    lines: Sequence[PercentileLine]
    marks: Sequence[StripMark]
    axis: Sequence[tuple[float, str]]
    ticks: Sequence[tuple[int, str]]
    said: Sequence[str]
    rows: Sequence[tuple[str, ...]]

    @property
    def wide(self) -> int:
        """Return its width in units."""
        return SLOT_WIDTH * self.span.slots


class HistogramChart(NamedTuple):
    """How many runs took how long: a bar for each bucket between the shortest and the longest run.

    Attributes:
        ticks: the labels of durations, by their position in per cent.
        said: each bar in words.
        rows: the duration, the number of runs and their share of each bucket with runs.
        most: the runs of the highest bar.
    """

    path: str
    wide: int
    ticks: Sequence[tuple[int, str]]
    said: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    most: int


def build_duration_chart(
    durations: Sequence[Sequence[int]], first: int, span: ChartRange, marks: Sequence[StripMark] = ()
) -> DurationChart:
    """Return the chart of the percentiles over time.

    Parameters:
        durations: for each minute or hour, how many runs each bucket has (bridge/ledger/duration_histogram.py).
        first: when the first minute or hour begins, ms since the epoch.
    """
    series = {name: [find_percentile(each, share) for each in durations] for share, name, _ in PERCENTILES}
    whole = add_up_buckets(durations)
    runs = sum(whole)
    known = [max(_LEAST, value) for values in series.values() for value in values if value is not None]
    low, high = (floor(log10(min(known))), ceil(log10(max(known)))) if known else (-3, 0)
    high = max(high, low + 1)
    lines = [
        PercentileLine(name, look, _draw_steps(series[name], low, high), _format_known(find_percentile(whole, share)))
        for share, name, look in PERCENTILES
    ]
    axis = [(round((high - power) / (high - low) * 100, 1), format_took(10.0**power)) for power in range(low, high + 1)]
    said, rows = [], []
    for at, buckets in enumerate(durations):
        time = format_slot(first + at * span.milliseconds, span.slots, span.milliseconds)
        count = sum(buckets)
        values = [_format_known(series[name][at]) for _, name, _ in PERCENTILES]
        words = ", ".join(f"{name} {value}" for (_, name, _), value in zip(PERCENTILES, values, strict=True))
        said.append(f"{time}: {_count_runs(count)}{f', {words}' if count else ''}")
        if count:
            rows.append((time, f"{count:,}", *values))
    sentence = (
        f"{_count_runs(runs)}: half took about {lines[0].value} or less, 95 % {lines[1].value}, 99 % {lines[2].value}."
        if runs
        else "No run ended in this time."
    )
    return DurationChart(span, sentence, runs, lines, marks, axis, list_ticks(first, span), said, rows[::-1])


def build_histogram(durations: Sequence[Sequence[int]]) -> HistogramChart | None:
    """Return the histogram of all runs; `None` without runs."""
    whole = add_up_buckets(durations)
    total = sum(whole)
    used = [bucket for bucket, count in enumerate(whole) if count]
    if not used:
        return None
    # A single bar as wide as the chart would look like a frame.
    shown = range(max(0, used[0] - 1), min(len(whole), used[-1] + 2))
    counts = [whole[bucket] for bucket in shown]
    names = [name_bucket(bucket) for bucket in shown]
    shares = [f"{100 * count / total:.3g} %" for count in counts]
    step = ceil(len(shown) / _LABELS)
    ticks = [
        (round(at / len(shown) * 100), format_took(DURATION_BOUNDS[shown[at] - 1]) if shown[at] else "0")
        for at in range(0, len(shown), step)
    ]
    rows = [(name, f"{count:,}", share) for name, count, share in zip(names, counts, shares, strict=True)]
    return HistogramChart(
        draw_bars(counts),
        SLOT_WIDTH * len(shown),
        ticks,
        [f"{name}: {_count_runs(count)}, {share}" for name, count, share in zip(names, counts, shares, strict=True)],
        [row for row, count in zip(rows, counts, strict=True) if count],
        max(counts),
    )


def name_bucket(bucket: int) -> str:
    """Return the durations of a bucket in words: `50 to 70 ms`."""
    if bucket == 0:
        return f"at most {format_took(DURATION_BOUNDS[0])}"
    if bucket >= len(DURATION_BOUNDS):
        return f"over {format_took(DURATION_BOUNDS[-1])}"
    low, high = format_took(DURATION_BOUNDS[bucket - 1]), format_took(DURATION_BOUNDS[bucket])
    return f"{low.removesuffix(unit) if low.endswith(unit := ' ' + high.split(' ')[1]) else low} to {high}"


def format_took(seconds: float) -> str:
    """Return a duration with two digits: `0.4 ms`, `12 ms`, `1.2 s`, `17 min`."""
    for least, factor, unit in ((120.0, 60.0, "min"), (0.9995, 1.0, "s"), (0.0, 0.001, "ms")):
        if seconds >= least:
            value = seconds / factor
            digits = 1 - floor(log10(value)) if value > 0 else 0
            return f"{round(value, digits):,.12g} {unit}"
    return "0 ms"


def _format_known(seconds: float | None) -> str:
    return "\u2013" if seconds is None else format_took(seconds)


def _count_runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def _draw_steps(values: Sequence[float | None], low: int, high: int) -> str:
    """Return a path with a step for each known value, on a logarithmic axis."""
    path, joined = "", False
    for at, value in enumerate(values):
        if value is None:
            joined = False
            continue
        y = round((high - log10(max(_LEAST, value))) / (high - low) * 100, 1)
        path += f"{'V' if joined else f'M{at * SLOT_WIDTH} '}{y}H{(at + 1) * SLOT_WIDTH}"
        joined = True
    return path
