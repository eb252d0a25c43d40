"""A server that does not answer is told with what to do about it, and a full broker is told as full."""

import pytest

from bridge.errors import HandoffFailed
from bridge.inspection.status_sources import StatusSources
from bridge.jobs.group_facts import GroupFacts


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OutOfMemoryError: command not allowed when used memory > 'maxmemory'", "raise its maxmemory"),
        ("ConnectionError: Error 111", "Start it, or fix the network or CELERY_BROKER_URL."),
    ],
)
def test_a_broker_that_does_not_answer_is_said_with_what_mends_it(error, advice):
    def question() -> None:
        raise HandoffFailed(error)

    asked = StatusSources(GroupFacts(0.0, "shop", ()))
    asked.ask(question)
    (sentence,) = asked.silent
    assert advice in sentence
    assert ("Start it" in sentence) == ("Start it" in advice)
