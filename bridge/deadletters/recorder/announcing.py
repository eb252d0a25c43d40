"""A recorder says in Redis that it lives, as bridges and workers do; nothing that is recorded rests on that.

It is not taken back: one that is started anew within the ten seconds for which it holds was never missed.
"""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from bridge.deadletters.questions.recorders import named
from bridge.deadletters.recorder.duties import Duty
from bridge.errors import LedgerUnavailable, RecordedElsewhere
from bridge.ledger import Ledger
from bridge.ledger.members import ANNOUNCE_EVERY, Members, unique_member
from bridge.settings import Settings

#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 2.0
#: Seconds between two announcements before the database has answered.
UNKNOWN_EVERY: Final = 0.3


def announcing(is_alive: Callable[[], bool], identity: Callable[[], str]) -> Duty:
    """The duty of one that is there to stay.

    Parameters:
        is_alive: whether its loop turns; one that hangs is silent.
        identity: of its database; empty while that is not known.
    """

    def announce(settings: Settings, stopping: threading.Event) -> None:
        ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
        if ledger is None:
            stopping.wait()
            return
        member = unique_member()
        with closing(ledger):
            while not stopping.is_set():
                if is_alive():
                    Members(ledger, "recorders").announce(member, {"database": identity()}, seen=[named(settings)])
                # Soon again, as long as others do not know which database this one has.
                stopping.wait(ANNOUNCE_EVERY if identity() else UNKNOWN_EVERY)

    return Duty("saying that it lives", ANNOUNCE_EVERY, lambda desk, stopping: announce(desk.settings, stopping))


def require_same_database(settings: Settings, identity: str, name: str) -> None:
    """Raise RecordedElsewhere if a living recorder of the group records into another database.

    Without a ledger in Redis, or while that is unavailable, other recorders are not known. Recorders of versions that
    do not announce their database are not compared.

    Parameters:
        identity: of this recorder's database.
        name: of the same, for people.
    """
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return
    try:
        with closing(ledger):
            living = Members(ledger, "recorders").living()
    except LedgerUnavailable:
        return
    others = sorted(member for member, state in living.items() if (state.get("database") or identity) != identity)
    if others:
        raise RecordedElsewhere(
            f"The recorder {', '.join(others)} of the group {settings.group!r} records into another database than this "
            f"one ({name}): each would get a part of the dead letters. Set DEADLETTERS_DATABASE_URL to the database of "
            "that recorder, or stop it and start this one ten seconds later."
        )
