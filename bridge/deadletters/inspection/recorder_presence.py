"""The presence of a recorder of the group. A group that records with `--once`, or not at all, misses none."""

import time
from contextlib import closing
from typing import Final, NamedTuple

from bridge.errors import LedgerUnavailable, RecordingNotEnded
from bridge.jobs.group_facts import format_since
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings

#: Seconds to wait for Redis.
ANSWER_WITHIN: Final = 2.0


class RecorderPresence(NamedTuple):
    """The recorders of a group, as Redis knows them.

    Attributes:
        gone_since: the last heartbeat (Unix time), if none runs now; `None`: one runs, or none ran in the last month,
            or Redis does not answer.
        wanted: whether a recorder is expected (no `--no-more`).
        living: the names of running recorders; `None`: Redis does not answer.
    """

    gone_since: float | None = None
    wanted: bool = True
    living: tuple[str, ...] | None = None

    @property
    def missed(self) -> bool:
        """Return whether the lack of a recorder needs a person."""
        return self.wanted and self.gone_since is not None

    def said(self, now: float | None = None) -> str:
        """Return a warning that the database is incomplete, if a recorder is missed; else ""."""
        if not self.missed or self.gone_since is None:
            return ""
        return (
            f"No recorder of dead letters runs, {format_since(self.gone_since, now or time.time())}: what has died "
            f"since is "
            "not here but in Kafka alone (`bridge deadletters list --from-topic`). Start `bridge deadletters record`."
        )


def read_recorder_presence(settings: Settings) -> RecorderPresence:
    """Return whether a recorder runs, and since when none does."""
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return RecorderPresence()
    try:
        with closing(ledger):
            members, name = GroupMembers(ledger, "recorders"), name_recorder_members(settings)
            if living := members.living():
                return RecorderPresence(living=tuple(living))
            return RecorderPresence(members.last_seen().get(name), members.is_missed(name), ())
    except LedgerUnavailable:
        # The status reports this.
        return RecorderPresence()


def expect_no_recorder(settings: Settings) -> None:
    """Note that no recorder is to run, so that none is missed until one is started again.

    Raises:
        RecordingNotEnded: a recorder runs, or there is no Redis to note it in.
        LedgerUnavailable: it does not answer.
    """
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        raise RecordingNotEnded("Without a ledger in Redis (LEDGER_URL) no recorder is missed.")
    with closing(ledger):
        members = GroupMembers(ledger, "recorders")
        if living := members.living():
            raise RecordingNotEnded(
                f"A recorder lives, or did ten seconds ago ({', '.join(living)}): stop it, and say it again."
            )
        members.end(name_recorder_members(settings))


def name_recorder_members(settings: Settings) -> str:
    """Return the member name of a group's recorders."""
    return f"group {settings.group}"
