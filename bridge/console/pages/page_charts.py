"""The charts of a page, with the week and the levels that are read from Redis for pages that show them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from bridge.console.console import Console
from bridge.console.pages import charts
from bridge.console.pages.chart_options import WEEK, ChartOptions, ChartRange
from bridge.console.pages.charts import ChartLevel, StripChart
from bridge.console.pages.duration_chart import (
    DurationChart,
    HistogramChart,
    build_duration_chart,
    build_histogram,
)
from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import HOUR_UNIT, read_history
from bridge.ledger.gauge_history import GaugeKey, GaugeSeries, read_gauges

#: Seconds to wait for Redis: after them, a page is shown without what it has.
ANSWER_WITHIN: Final = 2.0
#: The names of levels.
_LEVELS: Final = {"lag": "Consumer lag", "backlog": "Backlog"}


class PageCharts(NamedTuple):
    """The charts of a page.

    Attributes:
        minutes, hours, durations, histogram: `None`: nothing is known, or the page has none.
        asked_durations: whether the page has durations.
    """

    options: ChartOptions
    minutes: StripChart | None = None
    hours: StripChart | None = None
    durations: DurationChart | None = None
    histogram: HistogramChart | None = None
    asked_durations: bool = False


def build_page_charts(
    here: Console,
    status: charts.Status,
    options: ChartOptions,
    scope: Mapping[str, str] = charts.NO_SCOPE,
    *,
    letters: Callable[[int], Sequence[int] | None] = lambda hours: None,
    gauge: GaugeKey | None = None,
    durations: bool = False,
) -> PageCharts:
    """Return the charts of what a status was narrowed to.

    Parameters:
        scope: the filter of its letters.
        letters: returns the dead letters of each of so many last hours; `None`: they are those of the counts.
        gauge: the level that is shown beside the counts.
        durations: whether durations are shown.
    """
    reading = _read_history(here, status, options, gauge, durations=durations)
    minute_level, hour_level = (
        None if gauge is None or values is None else ChartLevel(_LEVELS[gauge.what], values)
        for values in (reading.minutes, reading.hours)
    )
    now = here.clock()
    made = PageCharts(
        options,
        charts.build_hour_chart(status, now, scope, options, minute_level),
        charts.build_day_chart(status, letters(options.hours.slots), now, scope, options, hour_level, reading.week),
        asked_durations=durations,
    )
    if reading.durations is None:
        return made
    first = charts.find_first(status, options.durations, now)
    marks = charts.list_marks(status, first, options.durations)
    return made._replace(
        durations=build_duration_chart(reading.durations, first, options.durations, marks),
        histogram=build_histogram(reading.durations),
    )


class _History(NamedTuple):
    """The history in Redis for the charts of a page; `None`: not asked, or Redis does not respond."""

    week: Mapping[str, Sequence[int]] | None = None
    minutes: GaugeSeries | None = None
    hours: GaugeSeries | None = None
    durations: Sequence[Sequence[int]] | None = None


def _read_history(
    here: Console, status: charts.Status, options: ChartOptions, gauge: GaugeKey | None, *, durations: bool
) -> _History:
    """Return what the charts show beside the status; a Redis that the status misses is not asked again."""
    counts = status.get("counts")
    if counts is None or not (options.hours == WEEK or gauge is not None or durations):
        return _History()
    whose = [(each["topic"], each["handler"]) for each in counts]

    def read_level(ledger: Ledger, span: ChartRange) -> GaugeSeries | None:
        if gauge is None:
            return None
        return read_gauges(ledger, [gauge], span.unit, span.slots, find_end(span))[gauge]

    def find_end(span: ChartRange) -> float:
        return (charts.find_first(status, span, here.clock()) + span.slots * span.milliseconds - 1) / 1000

    ledger = Ledger.once(here.desk.settings, ANSWER_WITHIN)
    if ledger is None:
        return _History()
    try:
        with closing(ledger):
            week = durations_found = None
            if options.hours == WEEK:
                week = read_history(ledger, whose, HOUR_UNIT, WEEK.slots, find_end(WEEK), durations=False).counts
            if durations:
                span = options.durations
                durations_found = read_history(ledger, whose, span.unit, span.slots, find_end(span)).durations
            return _History(
                week, read_level(ledger, options.minutes), read_level(ledger, options.hours), durations_found
            )
    except LedgerUnavailable:
        # The status says so within seconds.
        return _History()
