"""Whether a Redis still has what it took: which data set answers, and may it have gone back (pure)."""

from typing import NamedTuple


class State(NamedTuple):
    """Which data set this is, how many writes it has seen, and which start of which server answers for it.

    `history` is Redis's replication id: another one from the moment on at which a replica becomes a master.
    `lost` counts the connections that the reader has lost so far.
    """

    epoch: str
    writes: int
    run_id: str
    history: str = ""
    lost: int = 0

    def doubt(self, before: "State") -> str | None:
        """Return why fates seen at `before` may be gone, or None where they cannot be.

        A new epoch: the data were wiped. Fewer writes: some were lost. Another run id: the server was started
        again or a replica took over, and writes may be lost that the count does not miss, others having
        written as many since. Another history: it was a replica meanwhile, and has another server's data. A lost
        connection: any of these, where the server hides them. Where nothing was lost, a reader in doubt finds every
        fate as it was: a doubt too many costs one more look, one too few would cost messages.
        """
        if self.epoch != before.epoch:
            return f"the ledger was wiped (its epoch was {before.epoch}, now it is {self.epoch})"
        if self.writes < before.writes:
            return f"the ledger went back (it had seen {before.writes} writes, now {self.writes})"
        if self.run_id != before.run_id:
            return "the ledger's Redis was started again or a replica took over: its last writes may be lost"
        if self.history != before.history:
            return "the ledger's Redis was a replica meanwhile: its last writes may be lost"
        if self.lost != before.lost:
            return "a connection to the ledger's Redis was lost: its last writes may be, too"
        return None
