"""A new death of a delivery is told from one that is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model.letter_deduplication import DeathKind, KnownLetter, classify_death
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.letters import letter

HERE = ("orders.dlq", 0, 0)


def known(
    status: LetterStatus = LetterStatus.OPEN, status_at: int = 20_000, number: int = 1, failed_at: int = 10_000
) -> KnownLetter:
    return KnownLetter(status, status_at, number, failed_at, frozenset({HERE}))


@pytest.mark.parametrize(
    ("status", "number", "failed_at", "told"),
    [
        # Written twice, or twice by a run that was repeated after a crash.
        (LetterStatus.OPEN, 1, 10_000, DeathKind.DUPLICATE),
        (LetterStatus.OPEN, 1, 9_000, DeathKind.DUPLICATE),
        (LetterStatus.RESOLVED, 1, 10_000, DeathKind.DUPLICATE),
        # The replay died.
        (LetterStatus.REPLAYING, 2, 30_000, DeathKind.AGAIN),
        # Whoever follows outcomes was faster, or a person.
        (LetterStatus.OPEN, 2, 30_000, DeathKind.AGAIN),
        (LetterStatus.RESOLVED, 2, 15_000, DeathKind.AGAIN),
        (LetterStatus.DISCARDED, 3, 15_000, DeathKind.AGAIN),
        (LetterStatus.ARCHIVED, 2, 15_000, DeathKind.AGAIN),
        # It ran once more under its old number: while a replay is under way, that is not the replay's end.
        (LetterStatus.REPLAYING, 1, 30_000, DeathKind.DUPLICATE),
        (LetterStatus.OPEN, 1, 30_000, DeathKind.AGAIN),
        # It began anew.
        (LetterStatus.OPEN, 0, 30_000, DeathKind.AGAIN),
        (LetterStatus.OPEN, 0, 9_000, DeathKind.DUPLICATE),
        (LetterStatus.RESOLVED, 0, 30_000, DeathKind.AGAIN),
        # Late news of what was ended.
        (LetterStatus.RESOLVED, 1, 20_000, DeathKind.DUPLICATE),
        (LetterStatus.DISCARDED, 1, 15_000, DeathKind.DUPLICATE),
        (LetterStatus.ARCHIVED, 0, 15_000, DeathKind.DUPLICATE),
        (LetterStatus.ARCHIVED, 1, 20_001, DeathKind.AGAIN),
    ],
)
def test_what_a_record_tells_of_a_letter_that_is_known(status, number, failed_at, told):
    assert classify_death(known(status), letter(7, number=number, failed_at=failed_at)) is told


def test_a_later_death_of_a_letter_whose_replay_has_an_unknown_end_opens_it():
    given_up = known(LetterStatus.REPLAYING)._replace(is_unknown=True)
    assert classify_death(given_up, letter(7, number=1, failed_at=30_000)) is DeathKind.AGAIN
    assert classify_death(given_up, letter(7, number=1, failed_at=10_000)) is DeathKind.DUPLICATE


@given(st.sampled_from(LetterStatus), st.integers(0, 3), st.integers(0, 40_000))
def test_the_same_record_is_no_news_unless_its_topic_was_made_again(status, number, failed_at):
    told = DeathKind.AGAIN if number > 1 and failed_at > 10_000 else DeathKind.READ_AGAIN
    assert classify_death(known(status), letter(0, number=number, failed_at=failed_at)) is told


@given(st.sampled_from(LetterStatus), st.integers(0, 40_000), st.integers(2, 9))
def test_a_death_with_a_higher_number_always_opens_it(status, failed_at, number):
    assert classify_death(known(status), letter(1, number=number, failed_at=failed_at)) is DeathKind.AGAIN
