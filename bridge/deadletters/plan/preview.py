"""What a plan will do with the letters that matched, in figures, before it is decided on (pure)."""

from typing import NamedTuple

from bridge.deadletters.plan.plan import Plan


class Preview(NamedTuple):
    """The letters that matched.

    Attributes:
        will: that it will do, as far as that is known.
        done: by the ledger.
        elsewhere: that another plan has: it had them when this one was made, or has taken them since.
        unknown: of handlers that nobody knows.
        unfit: too large for their topic, or too old to be at hand.
    """

    matched: int
    will: int
    done: int
    elsewhere: int
    unknown: int
    unfit: int

    @property
    def left_out(self) -> int:
        """How many it will not do."""
        return self.matched - self.will


def preview(plan: Plan, gone: int) -> Preview:
    """What will become of the letters that matched.

    Parameters:
        gone: how many of the plan's letters others have taken since it was made.
    """
    counts = plan.counts
    unknown, unfit = sum(counts.unknown_handlers.values()), counts.too_large + counts.too_old
    will = counts.letters - gone - counts.done - unknown - unfit
    return Preview(
        counts.letters + counts.replaying, max(0, will), counts.done, counts.replaying + gone, unknown, unfit
    )
