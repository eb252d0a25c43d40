"""The id of a partition's log: the topic's, and how often the log lost its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger import KnownLog


@given(st.text("abcXYZ019_-", min_size=1), st.integers(0, 10_000))
def test_a_log_is_known_by_its_id(topic_id: str, turn: int):
    log = KnownLog(topic_id, turn, epoch=7)
    assert KnownLog.from_id(log.id) == log._replace(epoch=-1)


def test_logs_of_one_topic_have_ids_of_their_own():
    assert len({KnownLog("id", turn).id for turn in range(20)} | {KnownLog("other").id}) == 21


@pytest.mark.parametrize("noted", ["id.x", "id.", "id"])
def test_an_id_without_a_number_is_of_the_first_log(noted: str):
    assert KnownLog.from_id(noted) == KnownLog("id")
