"""The counts that bridges exchange for each queue or topic, such as queued parked deliveries, to keep a common limit.

No fate depends on them.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from bridge.formats.untrusted_json import log_skipped_once
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key

logger = logging.getLogger(__name__)

#: Seconds that a bridge's counts are valid.
HOLDS: Final = 5.0


class PeerBacklog:
    """The exchange of counts among bridges, a few times a second while deliveries are due.

    Parameters:
        member: the name of this bridge.
        what: the kind of count.
    """

    def __init__(self, ledger: Ledger, member: str, what: str = "ahead") -> None:
        self._ledger, self._member, self._what = ledger, member, what

    def exchange(self, mine: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Report the counts of each queue (messages and deliveries waiting there); return the sums of other bridges.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        now = time.time()
        with self._ledger.asking("exchange backlogs with other bridges") as pipe:
            for queue, (messages, deliveries) in mine.items():
                pipe.hset(self._key(queue), self._member, f"{messages} {deliveries} {now}")
                pipe.expire(self._key(queue), 60)
                pipe.hgetall(self._key(queue))
            answers = pipe.execute()
        return {queue: self._sum(found, now) for queue, found in zip(mine, answers[2::3], strict=True)}

    def _sum(self, found: Mapping[bytes, bytes], now: float) -> tuple[int, int]:
        messages = deliveries = 0
        for member, said in found.items():
            try:
                count, carried, at = said.decode().split()
                of_another, passed = member.decode() != self._member, abs(now - float(at))
                if of_another and passed < HOLDS:
                    messages, deliveries = messages + int(count), deliveries + int(carried)
            except ValueError:
                log_skipped_once(logger, f"{member!r} of {self._key('')} in Redis", "it is no count of a bridge")
        return messages, deliveries

    def _key(self, queue: str) -> str:
        return ledger_key(self._ledger.cluster, self._ledger.group, self._what, queue)
