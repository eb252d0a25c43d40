"""The status without what errors say, for people who may not see every field of values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.dispatch.carrier_message import WaitingFailures
from bridge.formats.group_decision import GroupDecision
from bridge.jobs.group_facts import GroupFacts

#: In the place of what an error has said, or a handler that has halted a topic.
REDACTED: Final = "what it said may quote what is masked, and is not shown here"


def redact_facts(facts: GroupFacts) -> GroupFacts:
    """The same facts, without a word that a handler has said (pure)."""
    return replace(
        facts,
        letters=tuple(replace(each, error=REDACTED) for each in facts.letters),
        failing=_redact_waits(facts.failing),
        outcomes={whose: each._replace(error=REDACTED) for whose, each in facts.outcomes.items()},
        unpublished={name: each._replace(error=REDACTED) for name, each in facts.unpublished.items()},
        tiers=tuple(replace(tier, failed=_redact_waits(tier.failed)) for tier in facts.tiers),
        breakers=tuple(replace(each, why=REDACTED) for each in facts.breakers),
        halts={topic: _redact_decision(halt) for topic, halt in facts.halts.items()},
    )


def redact_halt(halt: Mapping[str, Any]) -> dict[str, Any]:
    """A halt as JSON, likewise; what a person says stays."""
    if "handler" not in halt:
        return dict(halt)
    return {name: said for name, said in halt.items() if name != "error"} | {"why": REDACTED}


def _redact_waits(found: Iterable[WaitingFailures]) -> tuple[WaitingFailures, ...]:
    return tuple(replace(each, error=REDACTED) for each in found)


def _redact_decision(halt: GroupDecision) -> GroupDecision:
    data = redact_halt(halt.data or {})
    why = str(data.pop("why", halt.why))
    return replace(halt, change=halt.change._replace(data=data, why=why))
