"""The ends of letters that the ledger has lost: which are written again."""

import pytest

from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.fate_reconciliation import choose_lost_end
from bridge.formats.delivery_identity import Origin
from bridge.ledger import Fate

DELIVERY = Origin("orders", "id", 3, 1234, "orders.handlers.charge", "bridge")
SPOT = LogPosition("orders.dlq", 3, 7)


def standing(status: LetterStatus, program: str = "bridge") -> LetterStanding:
    return LetterStanding(1, status, 1, None, program, DELIVERY, 2, 0, SPOT, None)


@pytest.mark.parametrize(
    ("status", "end"), [(LetterStatus.DISCARDED, Fate.DISCARDED), (LetterStatus.RESOLVED, Fate.DONE)]
)
def test_what_has_ended_and_is_dead_in_the_ledger_gets_its_end_again(status: LetterStatus, end: Fate) -> None:
    assert choose_lost_end(standing(status), Fate.DEAD, in_flight=False) is end


@pytest.mark.parametrize("status", [LetterStatus.OPEN, LetterStatus.REPLAYING, LetterStatus.ARCHIVED])
def test_what_is_dead_and_has_not_ended_keeps_its_fate(status: LetterStatus) -> None:
    assert choose_lost_end(standing(status), Fate.DEAD, in_flight=False) is None


@pytest.mark.parametrize("fate", sorted(set(Fate) - {Fate.DEAD}))
@pytest.mark.parametrize("status", [LetterStatus.DISCARDED, LetterStatus.RESOLVED])
def test_no_other_fate_than_dead_is_overwritten(status: LetterStatus, fate: Fate) -> None:
    assert choose_lost_end(standing(status), fate, in_flight=False) is None


def test_what_was_sent_again_since_keeps_its_fate() -> None:
    assert choose_lost_end(standing(LetterStatus.DISCARDED), Fate.DEAD, in_flight=True) is None


def test_letters_of_other_programs_have_no_fate() -> None:
    assert choose_lost_end(standing(LetterStatus.DISCARDED, "spring"), Fate.DEAD, in_flight=False) is None
