"""Whether a recorder lives where one did: what a group that has none, or records by `--once`, is not asked."""

from contextlib import closing
from typing import Final, NamedTuple

from bridge.errors import LedgerUnavailable, RecordingNotEnded
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.settings import Settings

#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 2.0


class Recorders(NamedTuple):
    """What Redis knows of a group's recorders.

    Attributes:
        gone_since: when one said last that it lives (Unix time), where none does now; `None`: one lives, or none was
            here in the last month, or Redis does not say.
        wanted: whether nobody has said that none is to run any more.
    """

    gone_since: float | None = None
    wanted: bool = True

    @property
    def missed(self) -> bool:
        """Whether that none lives needs a person."""
        return self.wanted and self.gone_since is not None


def recorders(settings: Settings) -> Recorders:
    """Whether one lives, and since when none does."""
    ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        return Recorders()
    try:
        with closing(ledger):
            members, name = Members(ledger, "recorders"), named(settings)
            if members.living():
                return Recorders()
            return Recorders(members.last_seen().get(name), members.is_missed(name))
    except LedgerUnavailable:
        # The status says so.
        return Recorders()


def want_none(settings: Settings) -> None:
    """Say that none is to run any more, so that nobody misses one until one is started again.

    Raises:
        RecordingNotEnded: one lives, or there is no Redis in which it could be said.
        LedgerUnavailable: it does not answer.
    """
    ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        raise RecordingNotEnded("Without a ledger in Redis (LEDGER_URL) no recorder is missed.")
    with closing(ledger):
        members = Members(ledger, "recorders")
        if living := members.living():
            raise RecordingNotEnded(
                f"A recorder lives, or did ten seconds ago ({', '.join(living)}): stop it, and say it again."
            )
        members.end(named(settings))


def named(settings: Settings) -> str:
    """What recorders of a group are seen as."""
    return f"group {settings.group}"
