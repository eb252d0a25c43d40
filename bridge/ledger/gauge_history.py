"""The consumer lag of topics and the backlog of handlers over time, as bridges have measured them, for charts.

Nothing depends on it. Each minute and each hour has its highest value; one in which no bridge measured has none.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

from bridge.ledger.delivery_counts import HOUR_UNIT, MINUTE_UNIT, TimeUnit
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

#: The measured values: records of a topic that are not committed; deliveries to a handler that could run now.
GaugeKind = Literal["lag", "backlog"]
#: The greatest value that is kept.
_MOST: Final = 2**32 - 2


class GaugeKey(NamedTuple):
    """A measured value: its kind, and the topic or handler."""

    what: GaugeKind
    name: str


#: The values of minutes or hours, the oldest first; `None`: nothing was measured then.
GaugeSeries = tuple[int | None, ...]


def write_gauges(ledger: Ledger, values: Mapping[GaugeKey, int], minute: int) -> None:
    """Write the values of a minute (since the epoch), and of its hour where they are the highest.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if not values:
        return
    written = {key: min(max(0, value), _MOST) + 1 for key, value in values.items()}
    hour = minute // 60
    with ledger.asking("note the lag and the backlog") as pipe:
        for key, value in written.items():
            _set(pipe, _gauge_key(ledger, key, MINUTE_UNIT, hour), minute % 60, value, MINUTE_UNIT)
            name = _gauge_key(ledger, key, HOUR_UNIT, hour // 24)
            pipe.execute_command("BITFIELD", name, "GET", "u32", f"#{hour % 24}")
        answers = pipe.execute()
        for (key, value), (highest,) in zip(written.items(), answers[2::3], strict=True):
            if value > highest:
                _set(pipe, _gauge_key(ledger, key, HOUR_UNIT, hour // 24), hour % 24, value, HOUR_UNIT)
        pipe.execute()


def _set(pipe: Any, name: str, slot: int, value: int, unit: TimeUnit) -> None:
    pipe.execute_command("BITFIELD", name, "SET", "u32", f"#{slot}", value)
    pipe.expire(name, unit.kept)


def read_gauges(
    ledger: Ledger, keys: Iterable[GaugeKey], unit: TimeUnit, count: int, now: float
) -> dict[GaugeKey, GaugeSeries]:
    """Return the last minutes or hours of each value, in one round trip; what another program wrote is unknown.

    Parameters:
        count: how many minutes or hours.
        now: Unix time; its minute or hour is the last one.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(keys))
    last = int(now // unit.seconds)
    first = last - count + 1
    strings = range(first // unit.slots, last // unit.slots + 1)
    form, start = Struct(f">{unit.slots}I"), first - strings.start * unit.slots
    with ledger.asking("read the lag and the backlog") as pipe:
        for key in wanted:
            for number in strings:
                pipe.getrange(_gauge_key(ledger, key, unit, number), 0, form.size - 1)
        answers = iter(pipe.execute(raise_on_error=False))
    found = {}
    for key in wanted:
        numbers: list[int] = []
        for _ in strings:
            answer = next(answers)
            string = b"" if is_wrong_type(answer) else raise_error_answer(answer)
            numbers += form.unpack(string.ljust(form.size, b"\0"))
        found[key] = tuple(number - 1 if number else None for number in numbers[start : start + count])
    return found


def _gauge_key(ledger: Ledger, key: GaugeKey, unit: TimeUnit, number: int) -> str:
    return ledger_key("", ledger.group, key.what, key.name, unit.name, number)
