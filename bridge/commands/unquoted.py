"""How the group stands, without what errors say: they may quote values of which somebody does not see every field."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.handoff.carriers import Waiting
from bridge.records.control import Decision
from bridge.upkeep.facts import Facts

#: In the place of what an error has said, or a handler that has halted a topic.
NOT_QUOTED: Final = "what it said may quote what is masked, and is not shown here"


def unquoted(facts: Facts) -> Facts:
    """The same facts, without a word that a handler has said (pure)."""
    return replace(
        facts,
        letters=tuple(replace(each, error=NOT_QUOTED) for each in facts.letters),
        failing=_waiting(facts.failing),
        outcomes={whose: each._replace(error=NOT_QUOTED) for whose, each in facts.outcomes.items()},
        unpublished={name: each._replace(error=NOT_QUOTED) for name, each in facts.unpublished.items()},
        tiers=tuple(replace(tier, failed=_waiting(tier.failed)) for tier in facts.tiers),
        breakers=tuple(replace(each, why=NOT_QUOTED) for each in facts.breakers),
        halts={topic: _decision(halt) for topic, halt in facts.halts.items()},
    )


def unquoted_halt(halt: Mapping[str, Any]) -> dict[str, Any]:
    """A halt as JSON, likewise; what a person says stays."""
    if "handler" not in halt:
        return dict(halt)
    return {name: said for name, said in halt.items() if name != "error"} | {"why": NOT_QUOTED}


def _waiting(found: Iterable[Waiting]) -> tuple[Waiting, ...]:
    return tuple(replace(each, error=NOT_QUOTED) for each in found)


def _decision(halt: Decision) -> Decision:
    data = unquoted_halt(halt.data or {})
    why = str(data.pop("why", halt.why))
    return replace(halt, change=halt.change._replace(data=data, why=why))
