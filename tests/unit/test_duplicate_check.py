"""Which deliveries a worker skips, by their fate and that of their source record."""

import pytest

from bridge.ledger.duplicate_check import is_to_skip
from bridge.ledger.fate_rules import SETTLED, Fate


@pytest.mark.parametrize(
    ("own", "origin", "skipped"),
    [
        (Fate.OPEN, Fate.OPEN, False),
        (Fate.HANDED, Fate.PARKED, False),  # a retry's own origin
        (Fate.HANDED, Fate.DEAD, False),  # a replay's
        (Fate.HANDED, Fate.DONE, True),
        (Fate.HANDED, Fate.DISCARDED, True),
        (Fate.DONE, Fate.OPEN, True),
        (Fate.PARKED, Fate.OPEN, True),
        (Fate.DEAD, Fate.OPEN, True),
        (Fate.DISCARDED, Fate.OPEN, True),
    ],
)
def test_a_worker_skips_what_is_settled(own: Fate, origin: Fate, skipped: bool) -> None:
    assert is_to_skip(own, origin) is skipped


@pytest.mark.parametrize("origin", Fate)
def test_a_retry_of_what_has_ended_is_skipped_and_of_what_is_dead_unless_a_person_sent_it_back(origin: Fate) -> None:
    ended = origin in (Fate.DONE, Fate.DISCARDED)
    assert is_to_skip(Fate.HANDED, origin, retried=False) is ended
    assert is_to_skip(Fate.HANDED, origin, retried=True) is (ended or origin is Fate.DEAD)


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize("origin", Fate)
@pytest.mark.parametrize("own", Fate)
def test_what_a_person_asked_to_run_again_is_skipped_for_its_own_fate_alone(own: Fate, origin: Fate, retried: bool):
    assert is_to_skip(own, origin, retried=retried, again=True) is (own in SETTLED)
