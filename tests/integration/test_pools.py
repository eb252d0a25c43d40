"""This project's own handlers under every pool that is promised (fork is everywhere else)."""

import pytest

from tests.processes import Stack, eventually


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["spawn", "threads", "solo"])
def test_deliveries_end_as_they_should_under_every_pool(stack: Stack, pool: str):
    stack.make_topics("orders")
    stack.bridge()
    if pool == "spawn":
        worker = stack.worker(CELERY_CONFIG_MODULE="tests.handlers.spawned")
    else:
        worker = stack.worker("--pool", pool)
    done, permanent, exhausted = stack.produce("orders", {"id": 1}, {"dead": "no such card"}, {"fail": True})
    eventually(lambda: stack.done("work") == [done], 30)
    letters = {letter.origin: letter.ours for letter in stack.dead("orders", 2)}
    assert (letters[permanent]["reason"], letters[permanent]["attempts"]) == ("permanent", "1")
    assert (letters[exhausted]["reason"], letters[exhausted]["attempts"]) == ("exhausted", "3")
    assert worker.exit_code is None
