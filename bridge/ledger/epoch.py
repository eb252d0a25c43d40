"""Whether a Redis still has what it took: which data set answers, and may it have gone back (pure)."""

from typing import NamedTuple


class State(NamedTuple):
    """Which data set this is, how many writes it has seen, and which start of which server answers for it."""

    epoch: str
    writes: int
    run_id: str

    def doubt(self, before: "State") -> str | None:
        """Return why fates seen at `before` may be gone, or None where they cannot be.

        A new epoch: the data were wiped. Fewer writes: some were lost. Another run id: the server was started
        again or a replica took over, and writes may be lost that the count does not miss, others having
        written as many since. Where nothing was lost, a reader in doubt finds every fate as it was: a doubt
        too many costs one more look, one too few would cost messages.
        """
        if self.epoch != before.epoch:
            return f"the ledger was wiped (its epoch was {before.epoch}, now it is {self.epoch})"
        if self.writes < before.writes:
            return f"the ledger went back (it had seen {before.writes} writes, now {self.writes})"
        if self.run_id != before.run_id:
            return "the ledger's Redis was started again or a replica took over: its last writes may be lost"
        return None
