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
        unpatched: that a patch leaves out: it changes nothing of them, does not apply, or makes what is not taken.
    """

    matched: int
    will: int
    done: int
    elsewhere: int
    unknown: int
    unfit: int
    unpatched: int = 0

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
    unpatched = sum(counts.edits.get(name, 0) for name in ("unchanged", "no_json", "not_applied", "not_valid"))
    will = counts.letters - gone - counts.done - unknown - unfit - unpatched
    return Preview(
        matched=counts.letters + counts.replaying,
        will=max(0, will),
        done=counts.done,
        elsewhere=counts.replaying + gone,
        unknown=unknown,
        unfit=unfit,
        unpatched=unpatched,
    )
