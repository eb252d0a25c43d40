"""The progress of each account (a handler on a partition): its first offset, how far it has come, and lost fates.

None of it expires: so a page that expired can be told from one that was never written.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_epoch import LedgerState
from bridge.ledger.ledger_layout import PAGE, Account, ledger_key


class AccountProgress(NamedTuple):
    """The progress of one account; `None` for what was never noted.

    Attributes:
        joined: the first offset for which the handler existed.
        reached: offsets below it, from `joined` on, were safe to commit.
        lost: the fates of some offsets below it were lost with the ledger's data.
    """

    joined: int | None = None
    reached: int | None = None
    lost: int | None = None


#: The part that all accounts of one partition's log share: topic, id of the topic's log, and partition.
LogKey = tuple[str, str, int]


class Accounts:
    """The accounts of a ledger. Each method raises LedgerUnavailable when Redis is unavailable or refuses."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names = [ledger_key(ledger.cluster, ledger.group, name) for name in AccountProgress._fields]

    def read_progress(self, accounts: Collection[Account]) -> list[AccountProgress]:
        """Return the progress of each account."""
        if not accounts:
            return []
        fields = [ledger_key(*account) for account in accounts]
        with self._ledger.asking("read where handlers begin") as pipe:
            for name in self._names:
                pipe.hmget(name, fields)
            rows = zip(*pipe.execute(), strict=True)
            return [AccountProgress(*(None if found is None else int(found) for found in row)) for row in rows]

    def read_reached(self, accounts: Collection[Account]) -> int | None:
        """Return how far a partition had come when this ledger last heard of it; `None` if it never did.

        Parameters:
            accounts: the handlers of one partition. If none of them is known, earlier handlers of the partition count.
        """
        reached = find_reached(self.read_progress(accounts))
        if reached is None:
            reached = find_reached(self.read_progress(find_log_accounts(self.by_log(), accounts)))
        return reached

    def list_accounts(self) -> list[Account]:
        """Return every account that ever began, those of removed handlers too.

        Fields that other programs wrote are left out.
        """
        with self._ledger.asking("list the handlers") as pipe:
            pipe.hkeys(self._names[0])
            (fields,) = pipe.execute()
        return sorted(account for account in map(_read_account, fields) if account is not None)

    def by_log(self) -> Mapping[LogKey, Collection[Account]]:
        """Return every account by its log."""
        found: defaultdict[LogKey, list[Account]] = defaultdict(list)
        for account in self.list_accounts():
            found[account[1:]].append(account)
        return found

    def join(self, account: Account, first: int) -> int:
        """Note that the ledger answers for the handler from offset `first` on; return the first offset in force.

        An earlier note stays in force, unless the page right below `first` is gone: it expired, or Redis lost it.
        Then no fate below is known, and nothing there counts as unaccounted for.
        """
        return self.join_all({account: first})[account]

    def join_all(self, firsts: Mapping[Account, int]) -> dict[Account, int]:
        """Do the same as `join` for many accounts, in at most four round trips."""
        if not firsts:
            return {}
        name, fields = self._names[0], {account: ledger_key(*account) for account in firsts}
        with self._ledger.asking("note where a handler begins") as pipe:
            pipe.hmget(name, [*fields.values()])
            (noted,) = pipe.execute()
            new = [account for account, at in zip(firsts, noted, strict=True) if at is None]
            for account in new:
                pipe.hsetnx(name, fields[account], str(firsts[account]))
            if new:
                # Also of those that another bridge noted meanwhile.
                pipe.hmget(name, [*fields.values()])
                noted = pipe.execute()[-1]
        joined = {account: int(at) for account, at in zip(firsts, noted, strict=True)}
        below = {
            account: self._ledger.page_key(account, max(0, firsts[account] - 1) // PAGE)
            for account, at in joined.items()
            if at < firsts[account]
        }
        existing = self._ledger.find_existing_keys([*below.values()])
        moved = {account: firsts[account] for account, page in below.items() if page not in existing}
        if moved:
            with self._ledger.asking("note where a handler begins") as pipe:
                pipe.hset(name, mapping={fields[account]: str(first) for account, first in moved.items()})
                pipe.execute()
        return joined | moved

    def raise_reached(self, offsets: Mapping[Account, int], since: LedgerState | None = None) -> LedgerState:
        """Note what is safe to commit, before it is committed: a commit above it shows that the ledger lost data.

        Parameters:
            since: the state when the offsets were checked. If the ledger may have lost data since then, nothing is
                noted.

        Returns:
            the ledger's state now, to compare with `since`.
        """
        with self._ledger.asking("note how far handlers have come") as pipe:
            # WATCH makes Redis refuse the write if its data set changes in between, on this or another connection.
            pipe.watch(ledger_key("epoch"))
            now = self._ledger.state_on(pipe)
            if offsets and (since is None or now.doubt(since) is None):
                pipe.multi()
                pipe.hset(
                    self._names[1], mapping={ledger_key(*account): str(offset) for account, offset in offsets.items()}
                )
                pipe.execute()
        return now

    def accept(self, account: Account, first: int) -> None:
        """Note that a person starts everything at this offset: lost fates below it are not searched."""
        (known,) = self.read_progress([account])
        with self._ledger.asking("note where a handler begins") as pipe:
            pipe.hset(self._names[1], ledger_key(*account), str(first))
            if known.lost is not None:
                pipe.hset(self._names[0], ledger_key(*account), str(first))
                pipe.hdel(self._names[2], ledger_key(*account))
            pipe.execute()

    def lose(self, accounts: Iterable[Account], below: int) -> None:
        """Note that the fates of all offsets below this one were lost with the ledger's data."""
        with self._ledger.asking("note what was lost") as pipe:
            pipe.hset(self._names[2], mapping={ledger_key(*account): str(below) for account in accounts})
            pipe.execute()


def find_reached(progress: Iterable[AccountProgress]) -> int | None:
    """Return how far a partition has come by the progress of its accounts; `None` if nothing is known."""
    # The farthest: a handler that was missing for a while is behind the others.
    return max((each.reached for each in progress if each.reached is not None), default=None)


def find_log_accounts(by_log: Mapping[LogKey, Collection[Account]], accounts: Collection[Account]) -> list[Account]:
    """Return every account of the logs of these accounts, those of removed handlers too."""
    return [account for log in {account[1:] for account in accounts} for account in by_log.get(log, ())]


def _read_account(field: bytes) -> Account | None:
    """Return the account in a field's name; `None` if another program wrote it."""
    try:
        parts = [unquote(part, errors="surrogatepass") for part in field.decode().split(":")]
        _, name, topic, topic_id, number = parts
        return Account(name, topic, topic_id, int(number))
    except ValueError:
        return None
