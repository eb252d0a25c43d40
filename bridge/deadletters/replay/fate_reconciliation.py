"""The reconciliation of the ledger with the letters that have ended.

A discard is in the ledger and in the database. A Redis that was set back (a failover, a restored file) has lost what
was written last: the letter is discarded, the ledger says dead again, and with `after_dead="hold"` the key would be
held for ever. The decision on one letter is pure; `FateReconciler` alone acts.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from threading import Event
from typing import Final

from bridge.deadletters.db import inflight_delivery_rows, letter_payload, letter_rows, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.letter_rows import LetterEnd
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import RECORDED_WITHIN, RecordingProgress
from bridge.formats.delivery_identity import Origin
from bridge.ledger import Fate
from bridge.ledger.ledger_epoch import LedgerState
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: The fate of a delivery by the status of its ended letter. An archived one keeps its fate.
END_FATES: Final = {LetterStatus.DISCARDED: Fate.DISCARDED, LetterStatus.RESOLVED: Fate.DONE}
#: Seconds between two comparisons.
COMPARE_EVERY: Final = 5.0
#: Letters that are compared at once; without a set-back only the last ones of each status.
AT_ONCE: Final = 500
#: Ms: the age of the ends that are compared after a set-back.
WITHIN: Final = 86_400_000
#: Seconds from the reading of a fate to the write: a process that was frozen in between leaves it to the next turn.
WRITE_WITHIN: Final = 10.0
#: Names of deliveries in a log line.
SHOWN: Final = 5


def choose_lost_end(letter: LetterStanding, fate: Fate, *, in_flight: bool) -> Fate | None:
    """Return the end that the ledger has lost, and gets again; `None` if it keeps its fate (pure).

    Parameters:
        letter: read when all dead letters were recorded that Kafka had after `fate` was read: a death after the end
            would have opened it.
        fate: of the delivery, in the ledger.
        in_flight: whether a plan has sent the delivery again since.
    """
    if fate is not Fate.DEAD or not letter.is_ours or in_flight:
        return None
    return END_FATES.get(letter.status)


class FateReconciler:
    """The comparison of ended letters with the ledgers of their groups.

    Every method raises LedgerUnavailable, KafkaUnavailable or DeskUnavailable if one of them does not answer.
    """

    def __init__(self, settings: Settings, database: Database, fates: LedgerFates) -> None:
        self._database, self._fates = database, fates
        self._recorded = RecordingProgress(settings, database)
        #: The states of the ledgers before the last comparison of all ends; empty: none was completed.
        self._compared: Mapping[str, LedgerState] = {}

    def run(self, stopping: Event) -> None:
        """Compare again and again, until `stopping` is set."""
        while not stopping.is_set():
            self.reconcile(stopping)
            stopping.wait(COMPARE_EVERY)

    def reconcile(self, stopping: Event | None = None) -> int:
        """Write lost ends to the ledgers again; return how many.

        The last ends are always compared, and all of a day if a ledger may have lost writes since all were compared.
        """
        with self._database.reading() as connection:
            since = sql.read_clock(connection) - WITHIN
            groups = letter_payload.find_groups_of_bridges(connection)
        states = {group: ledger.state() for group in groups if (ledger := self._fates.ledger(group)) is not None}
        if not states:
            return 0
        is_doubted = any(
            group not in self._compared or state.doubt(self._compared[group]) for group, state in states.items()
        )
        written, is_complete = 0, True
        for status in END_FATES:
            page: Sequence[LetterEnd] = ()
            while not (stopping is not None and stopping.is_set()):
                with self._database.reading() as connection:
                    before = page[-1] if page else None
                    page = letter_rows.find_last_ended_letters(connection, status, since, before, AT_ONCE)
                ended, is_certain = self._reconcile_page([end.id for end in page])
                written += ended
                is_complete = is_complete and is_certain
                if len(page) < AT_ONCE or not is_doubted:
                    break
        if is_doubted and is_complete and not (stopping is not None and stopping.is_set()):
            self._compared = states
        return written

    def _reconcile_page(self, ids: Sequence[int]) -> tuple[int, bool]:
        """Write the lost ends of these letters; return how many, and whether nothing was left for later."""
        if not ids:
            return 0, True
        with self._database.reading() as connection:
            found = letter_payload.read_letter_standings(connection, ids)
        suspects: dict[tuple[str, str], list[LetterStanding]] = defaultdict(list)
        for letter in self._find_dead(found.values()):
            suspects[letter.delivery.group, letter.delivery.topic].append(letter)
        written, is_complete = 0, True
        for (group, topic), some in suspects.items():
            read_at = time.monotonic()
            dead = self._find_dead(some)
            # After the fates: a worker marks a delivery as dead once its letter is in Kafka.
            is_recorded = self._recorded.all_of(group, topic, RECORDED_WITHIN)
            ended = self._write(dead, read_at) if is_recorded else None
            is_complete = is_complete and ended is not None
            written += len(ended or ())
        return written, is_complete

    def _find_dead(self, some: Iterable[LetterStanding]) -> list[LetterStanding]:
        ours = [letter for letter in some if letter.is_ours]
        fates = self._fates.read_fates([letter.delivery for letter in ours])
        return [letter for letter, fate in zip(ours, fates, strict=True) if fate is Fate.DEAD]

    def _write(self, dead: Sequence[LetterStanding], read_at: float) -> list[Origin] | None:
        """Write the ends of letters whose dead letters are all recorded, and return the deliveries; `None`: too late.

        The letters are locked meanwhile: no plan takes them, and no death is recorded.
        """
        with self._database.writing() as connection:
            inflight_delivery_rows.lock_claims(connection)
            ends = _choose_ends(connection, dead)
            if time.monotonic() - read_at > WRITE_WITHIN:
                return None
            ended = {end: self._fates.end_dead(some, end) for end, some in ends.items()}
        told = [delivery for some in ended.values() for delivery in some]
        if told:
            counts = Counter({end.name.lower(): len(some) for end, some in ended.items() if some})
            logger.warning(
                "Ended dead letters: %d. Their end is in the ledger again (%s), which had them as dead: %s%s. "
                "Either Redis lost its last writes (a failover, a restored file), or a frozen worker marked them late.",
                len(told),
                ", ".join(f"{end} {count}" for end, count in counts.items()),
                ", ".join(delivery.identity for delivery in told[:SHOWN]),
                " …" if len(told) > SHOWN else "",
            )
        return told


def _choose_ends(connection: Connection, dead: Sequence[LetterStanding]) -> dict[Fate, list[Origin]]:
    """Return the deliveries by the end that is written, as their letters are now."""
    now = letter_payload.read_letter_standings(connection, [letter.id for letter in dead], lock=True)
    elsewhere = inflight_delivery_rows.find_deliveries_elsewhere(
        connection, 0, [letter.delivery.identity for letter in now.values()]
    )
    ends: dict[Fate, list[Origin]] = defaultdict(list)
    for letter in now.values():
        sent = elsewhere.get(letter.delivery.identity)
        in_flight = sent is not None and not sent.before(letter.number)
        if (end := choose_lost_end(letter, Fate.DEAD, in_flight=in_flight)) is not None:
            ends[end].append(letter.delivery)
    return ends
