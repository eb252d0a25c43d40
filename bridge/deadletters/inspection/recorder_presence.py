"""Whether a recorder of the group lives. A group that records with `--once`, or not at all, misses none."""

import time
from contextlib import closing
from typing import Final, NamedTuple

from bridge.errors import LedgerUnavailable, RecordingNotEnded
from bridge.jobs.group_facts import format_since
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings

#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 2.0


class RecorderPresence(NamedTuple):
    """What Redis knows of a group's recorders.

    Attributes:
        gone_since: when one said last that it lives (Unix time), where none does now; `None`: one lives, or none was
            here in the last month, or Redis does not say.
        wanted: whether nobody has said that none is to run any more.
        living: the names of those that live; `None`: Redis does not say.
    """

    gone_since: float | None = None
    wanted: bool = True
    living: tuple[str, ...] | None = None

    @property
    def missed(self) -> bool:
        """Whether that none lives needs a person."""
        return self.wanted and self.gone_since is not None

    def said(self, now: float | None = None) -> str:
        """That what the database has is not all, where one is missed: it looks well then. Empty: none is missed."""
        if not self.missed or self.gone_since is None:
            return ""
        return (
            f"No recorder of dead letters runs, {format_since(self.gone_since, now or time.time())}: what has died "
            f"since is "
            "not here but in Kafka alone (`bridge deadletters list --from-topic`). Start `bridge deadletters record`."
        )


def read_recorder_presence(settings: Settings) -> RecorderPresence:
    """Whether one lives, and since when none does."""
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
        # The status says so.
        return RecorderPresence()


def expect_no_recorder(settings: Settings) -> None:
    """Say that none is to run any more, so that nobody misses one until one is started again.

    Raises:
        RecordingNotEnded: one lives, or there is no Redis in which it could be said.
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
    """What recorders of a group are seen as."""
    return f"group {settings.group}"
