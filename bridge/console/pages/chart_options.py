"""The options of the charts of a page: their ranges, their scale, and pictures or tables; all in one parameter (pure).

`charts=15m.7d.shared.table` has each choice that differs from the default as a word.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from bridge.ledger.delivery_counts import HOUR_UNIT, MINUTE_UNIT, TimeUnit

#: The name of the parameter.
PARAMETER: Final = "charts"


class ChartRange(NamedTuple):
    """A range of time that a chart shows.

    Attributes:
        word: its name in the parameter.
        words: its name on the page.
        slots: how many minutes or hours.
        heading: the heading of the chart.
    """

    word: str
    words: str
    unit: TimeUnit
    slots: int
    heading: str

    @property
    def milliseconds(self) -> int:
        """Return the length of a slot."""
        return self.unit.seconds * 1000


QUARTER: Final = ChartRange("15m", "15 min", MINUTE_UNIT, 15, "Last 15 minutes")
HOUR: Final = ChartRange("1h", "1 h", MINUTE_UNIT, 60, "Last hour")
DAY: Final = ChartRange("24h", "24 h", HOUR_UNIT, 24, "Last day")
WEEK: Final = ChartRange("7d", "7 d", HOUR_UNIT, 168, "Last 7 days")
RANGES: Final = (QUARTER, HOUR, DAY, WEEK)
#: The beginning of the word for the range of durations.
_DURATIONS: Final = "took-"
_SHARED, _TABLE = "shared", "table"


class ChartLink(NamedTuple):
    """A choice of an option: its words and address, and whether it is the current one."""

    words: str
    address: str
    current: bool


@dataclass(frozen=True, slots=True)
class ChartOptions:
    """The chosen options.

    Attributes:
        minutes, hours: the ranges of the chart by the minute and of the one by the hour.
        durations: the range of the durations of runs.
        shared: whether counts have one scale, so that their heights compare.
        table: whether values are tables instead of pictures.
    """

    minutes: ChartRange = HOUR
    hours: ChartRange = DAY
    durations: ChartRange = HOUR
    shared: bool = False
    table: bool = False

    @classmethod
    def parse(cls, text: str) -> "ChartOptions":
        """Return the options that a parameter has; words that it does not know are left out."""
        words = set(text.split("."))

        def choose(ranges: Iterable[ChartRange], default: ChartRange, prefix: str = "") -> ChartRange:
            return next((each for each in ranges if prefix + each.word in words), default)

        return cls(
            choose((QUARTER,), HOUR),
            choose((WEEK,), DAY),
            choose((QUARTER, DAY, WEEK), HOUR, _DURATIONS),
            _SHARED in words,
            _TABLE in words,
        )

    @property
    def text(self) -> str:
        """Return the parameter: empty if all is as by default."""
        default = DEFAULT_OPTIONS
        words = [
            self.minutes.word if self.minutes != default.minutes else "",
            self.hours.word if self.hours != default.hours else "",
            _DURATIONS + self.durations.word if self.durations != default.durations else "",
            _SHARED if self.shared else "",
            _TABLE if self.table else "",
        ]
        return ".".join(filter(None, words))


DEFAULT_OPTIONS: Final = ChartOptions()


class ChartControls:
    """The options of a page's charts, with the links that change them.

    Parameters:
        path: the address of the page.
        query: its other parameters, which the links keep.
    """

    def __init__(self, options: ChartOptions, path: str, query: Iterable[tuple[str, str]] = ()) -> None:
        self.options, self._path = options, path
        self._query = [pair for pair in query if pair[0] != PARAMETER]

    @property
    def minutes(self) -> list[ChartLink]:
        """Return the choices of the chart by the minute."""
        return [self._link(each.words, minutes=each) for each in (QUARTER, HOUR)]

    @property
    def hours(self) -> list[ChartLink]:
        """Return the choices of the chart by the hour."""
        return [self._link(each.words, hours=each) for each in (DAY, WEEK)]

    @property
    def durations(self) -> list[ChartLink]:
        """Return the choices of the durations."""
        return [self._link(each.words, durations=each) for each in RANGES]

    @property
    def scales(self) -> list[ChartLink]:
        """Return the choices of the scale."""
        return [self._link("each its own", shared=False), self._link("one for all", shared=True)]

    @property
    def forms(self) -> list[ChartLink]:
        """Return the choices of the form."""
        return [self._link("pictures", table=False), self._link("tables", table=True)]

    def _link(self, words: str, **changes: Any) -> ChartLink:
        changed: ChartOptions = replace(self.options, **changes)
        query = [*self._query, *([(PARAMETER, changed.text)] if changed.text else [])]
        return ChartLink(words, self._path + (f"?{urlencode(query)}" if query else ""), changed == self.options)


def read_chart_options(query: Mapping[str, str]) -> ChartOptions:
    """Return the options of a request's parameters."""
    return ChartOptions.parse(query.get(PARAMETER, ""))
