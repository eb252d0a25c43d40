"""A recorder says in Redis that it lives, as bridges and workers do; nothing that is recorded rests on that.

It is not taken back: one that is started anew within the ten seconds for which it holds was never missed.
"""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from bridge.deadletters.questions.recorders import named
from bridge.deadletters.recorder.duties import Duty
from bridge.ledger import Ledger
from bridge.ledger.members import ANNOUNCE_EVERY, Members, unique_member
from bridge.settings import Settings

#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 2.0


def announcing(is_alive: Callable[[], bool]) -> Duty:
    """The duty of one that is there to stay.

    Parameters:
        is_alive: whether its loop turns; one that hangs is silent.
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
                    Members(ledger, "recorders").announce(member, {}, seen=[named(settings)])
                stopping.wait(ANNOUNCE_EVERY)

    return Duty("saying that it lives", ANNOUNCE_EVERY, lambda desk, stopping: announce(desk.settings, stopping))
