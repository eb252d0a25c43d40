"""The status without the texts of errors, for accounts that may not see every field of values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.dispatch.carrier_message import WaitingFailures
from bridge.formats.group_decision import GroupDecision
from bridge.jobs.group_facts import GroupFacts

#: The text in the place of an error, or of the reason that a handler gave for a halt.
REDACTED: Final = "hidden, because it may quote masked values"


def redact_facts(facts: GroupFacts) -> GroupFacts:
    """Return the facts without any text that a handler wrote (pure)."""
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
    """Return a halt as JSON without the text of a handler; the reason of a person stays."""
    if "handler" not in halt:
        return dict(halt)
    return {name: said for name, said in halt.items() if name != "error"} | {"why": REDACTED}


def _redact_waits(found: Iterable[WaitingFailures]) -> tuple[WaitingFailures, ...]:
    return tuple(replace(each, error=REDACTED) for each in found)


def _redact_decision(halt: GroupDecision) -> GroupDecision:
    data = redact_halt(halt.data or {})
    why = str(data.pop("why", halt.why))
    return replace(halt, change=halt.change._replace(data=data, why=why))
