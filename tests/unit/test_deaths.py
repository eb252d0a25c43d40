"""A new death of a delivery is told from one that is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.letters.deaths import Known, News, news
from bridge.deadletters.letters.letter import Status
from tests.desk.letters import letter

HERE = ("orders.dlq", 0, 0)


def known(status: Status = Status.OPEN, status_at: int = 20_000, number: int = 1, failed_at: int = 10_000) -> Known:
    return Known(status, status_at, number, failed_at, frozenset({HERE}))


@pytest.mark.parametrize(
    ("status", "number", "failed_at", "told"),
    [
        # Written twice, or twice by a run that was repeated after a crash.
        (Status.OPEN, 1, 10_000, News.DUPLICATE),
        (Status.OPEN, 1, 9_000, News.DUPLICATE),
        (Status.RESOLVED, 1, 10_000, News.DUPLICATE),
        # The replay died.
        (Status.REPLAYING, 2, 30_000, News.AGAIN),
        # Whoever follows outcomes was faster, or a person.
        (Status.OPEN, 2, 30_000, News.AGAIN),
        (Status.RESOLVED, 2, 15_000, News.AGAIN),
        (Status.DISCARDED, 3, 15_000, News.AGAIN),
        (Status.ARCHIVED, 2, 15_000, News.AGAIN),
        # It ran once more under its old number: while a replay is under way, that is not the replay's end.
        (Status.REPLAYING, 1, 30_000, News.DUPLICATE),
        (Status.OPEN, 1, 30_000, News.AGAIN),
        # It began anew.
        (Status.OPEN, 0, 30_000, News.AGAIN),
        (Status.OPEN, 0, 9_000, News.DUPLICATE),
        (Status.RESOLVED, 0, 30_000, News.AGAIN),
        # Late news of what was ended.
        (Status.RESOLVED, 1, 20_000, News.DUPLICATE),
        (Status.DISCARDED, 1, 15_000, News.DUPLICATE),
        (Status.ARCHIVED, 0, 15_000, News.DUPLICATE),
        (Status.ARCHIVED, 1, 20_001, News.AGAIN),
    ],
)
def test_what_a_record_tells_of_a_letter_that_is_known(status, number, failed_at, told):
    assert news(known(status), letter(7, number=number, failed_at=failed_at)) is told


def test_a_later_death_of_a_letter_whose_replay_has_an_unknown_end_opens_it():
    given_up = known(Status.REPLAYING)._replace(is_unknown=True)
    assert news(given_up, letter(7, number=1, failed_at=30_000)) is News.AGAIN
    assert news(given_up, letter(7, number=1, failed_at=10_000)) is News.DUPLICATE


@given(st.sampled_from(Status), st.integers(0, 3), st.integers(0, 40_000))
def test_the_same_record_is_no_news_unless_its_topic_was_made_again(status, number, failed_at):
    told = News.AGAIN if number > 1 and failed_at > 10_000 else News.READ_AGAIN
    assert news(known(status), letter(0, number=number, failed_at=failed_at)) is told


@given(st.sampled_from(Status), st.integers(0, 40_000), st.integers(2, 9))
def test_a_death_with_a_higher_number_always_opens_it(status, failed_at, number):
    assert news(known(status), letter(1, number=number, failed_at=failed_at)) is News.AGAIN
