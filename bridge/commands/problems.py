"""What needs a person, as sentences: what, since when, how many, and what to do (pure).

Empty when nothing does. What a bridge or worker mends by itself within a minute is none.
"""

from bridge.commands import held, standing, unsettled
from bridge.upkeep import handler_health
from bridge.upkeep.facts import Facts
from bridge.upkeep.group_members import foreign_member
from bridge.upkeep.open_transactions import held_back_topics
from bridge.upkeep.problem import Problem
from bridge.upkeep.uncared import divided_topics, other_applications, unconsumed_queues, unknown_handlers


def silent(sentence: str) -> Problem:
    """What does not answer: what it alone knows is not known."""
    what = sentence.partition(":")[0].partition(". ")[0]
    return Problem(sentence, "silent", what, lost=None, do="start it, or mend the network")


def problems(facts: Facts) -> list[Problem]:
    """Everything that needs a person; what stops most comes first."""
    return [
        *map(silent, facts.silent),
        *standing.memory(facts),
        *standing.halted(facts),
        *facts.stale,
        *standing.down(facts),
        *standing.unnamed(facts),
        *standing.bridges(facts),
        *handler_health.lost_bridges(facts),
        *other_applications(facts).values(),
        *([foreign_member(facts.group, facts.foreign)] if facts.foreign else []),
        *divided_topics(facts).values(),
        *standing.obstacles(facts),
        *unconsumed_queues(facts).values(),
        *unknown_handlers(facts).values(),
        *unsettled.known_to_some(facts),
        *handler_health.hung(facts),
        *handler_health.slow(facts),
        *handler_health.skewed(facts),
        *unsettled.lost(facts),
        *unsettled.changed(facts),
        *unsettled.old(facts),
        *held.unmade(facts),
        *held.unfit(facts),
        *held.out_of_sync({tier.topic: tier.replicas for tier in facts.tiers}),
        *held.overdue(facts),
        *held.drained(facts),
        *standing.dying(facts),
        *standing.paused(facts),
        *held_back_topics(facts),
        *standing.behind(facts),
        *standing.hot_keys(facts),
        *handler_health.quiet(facts),
        *unsettled.failing(facts),
        *handler_health.dying_processes(facts),
        *unsettled.dead(facts),
    ]
