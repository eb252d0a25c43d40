"""The recorder's heartbeat in Redis, and the refusal of a second database for the same group."""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from bridge.deadletters.inspection.recorder_presence import name_recorder_members
from bridge.deadletters.recorder.background_duties import Duty
from bridge.errors import LedgerUnavailable, RecordedElsewhere
from bridge.ledger import Ledger
from bridge.ledger.group_members import ANNOUNCE_EVERY, GroupMembers, make_member_name
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds to wait for Redis.
ANSWER_WITHIN: Final = 2.0
#: Seconds between two announcements before the database has answered.
UNKNOWN_EVERY: Final = 0.3


class RecorderMembership:
    """The membership of a recorder among those of its group.

    Parameters:
        is_alive: whether its loop runs; a stuck recorder has no heartbeat.
        stays: whether it announces itself: not with `--once`.

    Attributes:
        refused: why it must end; `None`: it may run.
    """

    def __init__(self, settings: Settings, is_alive: Callable[[], bool] = lambda: True, stays: bool = False) -> None:
        self.refused: RecordedElsewhere | None = None
        self._settings, self._is_alive, self._stays = settings, is_alive, stays
        self._member = make_member_name()
        self._identity, self._name = "", ""
        #: When it first announced its database, by Redis's clock; it survives a wiped Redis.
        self._since: float | None = None

    @property
    def duty(self) -> Duty:
        """Return the duty that sends the heartbeat."""
        return Duty("saying that it lives", ANNOUNCE_EVERY, lambda _, stopping: self._announce(stopping))

    def enter(self, identity: str, name: str) -> None:
        """Announce which database this recorder has, before it records anything.

        Without a ledger in Redis, which is logged, or while that is unavailable, other recorders are not known.

        Parameters:
            identity: of the database.
            name: of the same, for people.

        Raises:
            RecordedElsewhere: an earlier recorder of the group has another database.
        """
        is_first, self._identity, self._name = not self._identity, identity, name
        ledger = Ledger.once(self._settings, ANSWER_WITHIN)
        if ledger is None:
            if is_first:
                logger.warning(
                    "There is no ledger: another recorder of the group %r with another database than %s is not "
                    "noticed, and each would get a part of the dead letters. Set LEDGER_URL to a Redis.",
                    self._settings.group,
                    name,
                )
            return
        try:
            with closing(ledger):
                self.announce_recorder(ledger)
        except LedgerUnavailable:
            return
        if self.refused is not None:
            raise self.refused

    def announce_recorder(self, ledger: Ledger) -> None:
        """Announce this recorder, then read the others: of two that start at once, one sees the other."""
        members = GroupMembers(ledger, "recorders")
        if self._stays:
            if self._identity and self._since is None:
                self._since = _now(ledger)
            state = {"database": self._identity} | ({} if self._since is None else {"since": self._since})
            members.announce(self._member, state, seen=[name_recorder_members(self._settings)])
        if self._identity:
            self._compare(members.living())
        if self.refused is not None and self._stays:
            members.leave(self._member)

    def _compare(self, living: Mapping[str, Mapping[str, Any]]) -> None:
        mine = None if self._since is None else (self._since, self._member)
        others = sorted(
            member
            for member, state in living.items()
            # Recorders of old versions do not announce their database, and are not compared.
            if (state.get("database") or self._identity) != self._identity
            # Those of versions that do not say since when were there before.
            and (mine is None or (state.get("since") or 0.0, member) < mine)
        )
        if others:
            self.refused = RecordedElsewhere(
                f"The recorder {', '.join(others)} of the group {self._settings.group!r} records into another database "
                f"than this one ({self._name}): each would get a part of the dead letters. Set "
                "DEADLETTERS_DATABASE_URL to the database of that recorder, or stop it and start this one ten seconds "
                "later."
            )

    def _announce(self, stopping: threading.Event) -> None:
        ledger = Ledger.from_settings(self._settings, timeout=ANSWER_WITHIN)
        if ledger is None:
            stopping.wait()
            return
        with closing(ledger):
            while not stopping.is_set():
                if self._is_alive() and self.refused is None:
                    self.announce_recorder(ledger)
                # Soon again, until others know the database of this one.
                stopping.wait(ANNOUNCE_EVERY if self._identity else UNKNOWN_EVERY)


def _now(ledger: Ledger) -> float:
    with ledger.asking("read the clock") as pipe:
        pipe.time()
        ((seconds, micros),) = pipe.execute()
    return float(seconds + micros / 1e6)
