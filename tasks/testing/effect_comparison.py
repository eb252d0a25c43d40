"""The comparison of a handler's effects after a crash with those of a run without one (pure)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Literal

from bridge.formats.failure import cut
from bridge.formats.text_forms import format_count

#: What is seen outside, by name.
Snapshot = Mapping[str, Any]
#: Longest text of a value in a report.
VALUE_LENGTH: Final = 120


@dataclass(frozen=True, slots=True)
class EffectFault:
    """One effect of a handler that is not as without the crash.

    Attributes:
        effect: its name: as `effects` or a `FakeService` calls it, or "messages to" a topic, or "the delivery".
        kind: "doubled", "lost" or "changed"; "unfinished" of a delivery that did not become done.
        detail: what is there, and what would be.
    """

    effect: str
    kind: Literal["doubled", "lost", "changed", "unfinished"]
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.effect}: {self.detail}"


class ExpectedEffects:
    """The effects of a handler that ran without a crash.

    Parameters:
        before: what was seen before it ran.
        runs: what was seen after each of some runs, each in a world of its own.

    Raises:
        ValueError: the runs differ in other things than the items of a collection, or have no effect.
    """

    def __init__(self, before: Snapshot, runs: Sequence[Snapshot]) -> None:
        flat = [_flatten(run) for run in runs]
        self._before, self._after = _flatten(before), flat[0]
        #: Names of collections whose items differ from run to run: they are counted.
        self._counted = {name for name in self._after if any(run.get(name) != self._after[name] for run in flat)}
        for name in sorted({name for run in flat for name in run}):
            values = [run.get(name, Counter()) for run in flat]
            if len({*map(_write_whole, values)}) > 1 and len({_count(value) for value in values}) > 1:
                shown = " and ".join(_write(value) for value in values[:2])
                raise ValueError(
                    f"two runs without a crash differ in {name!r}: {shown}. Leave out of effects() what changes by "
                    "itself, such as times and generated ids."
                )
        if all(self._before.get(name, Counter()) == value for name, value in self._after.items()):
            raise ValueError(
                "the handler changed nothing that effects(), services and message.publish show, so nothing could be "
                "doubled or lost. Another process must see the effects: a database in a file or on a server, and no "
                "variable or database in memory."
            )

    def compare(self, found: Snapshot) -> list[EffectFault]:
        """Return how the effects after a crash and a redelivery differ."""
        flat = _flatten(found)
        faults = []
        for name in sorted({*self._after, *flat}):
            before, after, now = (values.get(name, Counter()) for values in (self._before, self._after, flat))
            if name in self._counted:
                before, after, now = _count(before), _count(after), _count(now)
            if now != after and (fault := _find_fault(name, before, after, now)):
                faults.append(fault)
        return faults


def _flatten(values: Snapshot, prefix: str = "") -> dict[str, Any]:
    """Return each effect by its name: collections as multisets of their items' texts, mappings item by item."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not isinstance(value, Counter):
            flat |= _flatten(value, f"{name}.")
        elif isinstance(value, Counter):
            flat[name] = Counter({_write_item(item): count for item, count in value.items()})
        elif isinstance(value, AbstractSet) or (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
            flat[name] = Counter(map(_write_item, value))
        else:
            flat[name] = value
    return flat


def _write_item(item: Any) -> str:
    return item if isinstance(item, str) else repr(item)


def _count(value: Any) -> Any:
    """Return the number of a collection's items; anything else has no number."""
    return value.total() if isinstance(value, Counter) else repr(value)


def _find_fault(name: str, before: Any, after: Any, now: Any) -> EffectFault | None:
    if isinstance(after, Counter) and isinstance(now, Counter):
        return _compare_items(name, before if isinstance(before, Counter) else Counter(), after, now)
    if _is_number(after) and _is_number(now):
        return _compare_numbers(name, before if _is_number(before) else 0, after, now)
    return EffectFault(name, "changed", f"{_write(now)}, and {_write(after)} without the crash")


def _compare_items(name: str, before: Counter[str], after: Counter[str], now: Counter[str]) -> EffectFault:
    extra, missing = now - after, after - now
    # Items that should be gone, and are there as before: their removal is lost.
    kept = extra & (before - after)
    if not missing and extra != kept:
        return EffectFault(name, "doubled", "; ".join(_tell_items(extra - kept, after, now)))
    if not extra - kept:
        return EffectFault(name, "lost", "; ".join(_tell_items(missing or kept, after, now)))
    detail = "; ".join([*_tell_items(extra, after, now), *_tell_items(missing, after, now)])
    return EffectFault(name, "changed", detail)


def _tell_items(items: Counter[str], after: Counter[str], now: Counter[str]) -> Iterator[str]:
    for item in sorted(items)[:3]:
        yield f"{cut(item, VALUE_LENGTH)} {_times(now[item])}, and {_times(after[item])} without the crash"
    if len(items) > 3:
        yield f"and {format_count(len(items) - 3, 'other item')}"


def _times(count: int) -> str:
    return "not there" if not count else "once" if count == 1 else f"{count} times"


def _compare_numbers(name: str, before: float, after: float, now: float) -> EffectFault:
    detail = f"{now:g}, and {after:g} without the crash"
    wanted, real = after - before, now - before
    if wanted * real < 0 or not wanted:
        return EffectFault(name, "changed", detail)
    return EffectFault(name, "doubled" if abs(real) > abs(wanted) else "lost", detail)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write_whole(value: Any) -> str:
    return repr(sorted(value.elements())) if isinstance(value, Counter) else repr(value)


def _write(value: Any) -> str:
    return cut(_write_whole(value), VALUE_LENGTH)
