"""The report of `crash_everywhere`: each crash with what it doubled or lost, and the remedies."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from bridge.formats.text_forms import format_count
from tasks.testing.crash_points import CrashPoint
from tasks.testing.effect_comparison import EffectFault

#: The delivery itself, as an effect that may not come to its end.
DELIVERY: Final = "the delivery"
#: The page that the remedies lead to, and its neighbour on messages.
_PAGE: Final = "docs/how-to/idempotency.md"
_MESSAGES: Final = "docs/how-to/publish-messages.md"

EffectSource = Literal["state", "service", "message", "delivery"]


@dataclass(frozen=True, slots=True)
class CrashExperiment:
    """One crash, and what was different after the delivery had run again.

    Attributes:
        point: where the process died.
        faults: empty: all is as without the crash.
    """

    point: CrashPoint
    faults: tuple[EffectFault, ...] = ()


@dataclass(frozen=True, slots=True)
class CrashReport:
    """All crashes of one handler.

    Attributes:
        handler: its name.
        file: of its function.
        experiments: one a crash point, in the order in which the handler reaches them.
        settles: whether it calls `settle_with`.
        services: names of its services.
    """

    handler: str
    file: str
    experiments: tuple[CrashExperiment, ...]
    settles: bool = False
    services: frozenset[str] = frozenset()

    @property
    def unsafe(self) -> tuple[CrashExperiment, ...]:
        """The crashes that doubled or lost an effect, or after which the delivery was not done."""
        return tuple(experiment for experiment in self.experiments if experiment.faults)

    def assert_safe(self) -> None:
        """Raise if any crash doubled or lost an effect.

        Raises:
            AssertionError: it says at which lines, what, and the remedies.
        """
        if self.unsafe:
            raise AssertionError("\n".join(self._tell_unsafe()))

    def __str__(self) -> str:
        """Return a table of all crashes."""
        rows = [
            (str(each.point), "; ".join(map(str, each.faults)) or "as without the crash") for each in self.experiments
        ]
        width = max(len(point) for point, _ in rows) if rows else 0
        return "\n".join([self._summary, *(f"  {point:<{width}}  {result}" for point, result in rows)])

    @property
    def _summary(self) -> str:
        killed = f"{self.handler} was killed at {format_count(len(self.experiments), 'point')}"
        if not self.unsafe:
            return f"{killed}: its effects are the same after each."
        return f"{killed}. After {len(self.unsafe)} of them its effects are wrong ({self.file}):"

    def _tell_unsafe(self) -> Iterator[str]:
        yield self._summary
        for faults, group in groupby(self.experiments, lambda experiment: experiment.faults):
            crashes = [*group]
            if not faults:
                continue
            yield f"  Killed at {_tell_range([crash.point for crash in crashes])}:"
            yield from (f"    {fault}" for fault in faults)
        yield "To do:"
        known = dict.fromkeys((fault.effect, fault.kind) for each in self.unsafe for fault in each.faults)
        for effect, kind in known:
            yield f"  {effect}, {kind}: {find_remedy(kind, self._find_source(effect), settles=self.settles)}"

    def _find_source(self, effect: str) -> EffectSource:
        if effect == DELIVERY:
            return "delivery"
        if effect.startswith(MESSAGES_TO):
            return "message"
        return "service" if effect in self.services else "state"


#: The beginning of the name of the messages that a handler publishes to a topic.
MESSAGES_TO: Final = "messages to "


def _tell_range(points: list[CrashPoint]) -> str:
    if len(points) == 1:
        return str(points[0])
    return f"{len(points)} points: from {points[0]}, to {points[-1]}"


def find_remedy(kind: str, source: EffectSource, *, settles: bool) -> str:
    """Return what to do about a fault, with the page that says how (pure).

    Parameters:
        kind: of the fault.
        source: what the effect is.
        settles: whether the handler calls `settle_with`.
    """
    own = f"{_PAGE}#settle-in-your-own-transaction"
    key = f"{_PAGE}#an-idempotency-key"
    match source, kind:
        case "delivery", _:
            return (
                "The second run fails on what the first one has left. Make the work an upsert, or settle the delivery "
                f"in the same transaction: {own}"
            )
        case "message", "lost":
            return (
                "Call message.publish in each run, before any early return; with settle_with, in its transaction: "
                f"{_MESSAGES}#with-your-own-database"
            )
        case "message", _:
            return (
                "Publish the same messages in the same order in each run: their ids are made of the delivery and "
                f"their number: {_MESSAGES}"
            )
        case "service", "doubled" | "changed":
            return (
                "Give the service an idempotency key that is the same in each run, such as message.coordinates with "
                f"the handler's name: {key}"
            )
        case "service", _:
            return (
                "The second run does not come to this call, because the first one has marked the work as done. Call "
                f"before that mark is committed, with an idempotency key: {key}"
            )
        case "state", _ if settles:
            return (
                "Do this work in the transaction of settle_with, behind that call, commit once, and do not catch "
                f"AlreadySettled: {own}"
            )
        case _:
            return (
                "Do all of this work in one transaction, with message.settle_with(session); or set a state that may be "
                f"set twice: {own}"
            )
