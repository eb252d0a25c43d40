"""Which version of the handlers' code lives, and in which a dead letter failed."""

import pytest

from bridge.ledger.group_members import GroupMembers
from tests.delivery_checks import choose, command, ledger, letters
from tests.processes import Stack, eventually


@pytest.mark.slow
@pytest.mark.parametrize("said", [{"dead": True}, {"kill": 9}], ids=["in a child", "in the main process"])
def test_workers_announce_the_version_of_their_handlers_and_dead_letters_say_it(stack: Stack, said: dict[str, object]):
    choose(stack, {"odd": {}})
    stack.make_topics("odd")
    worker = stack.worker(wait=False, KAFKA_HANDLERS_VERSION="2026.7")
    stack.bridge()
    stack.produce("odd", {"odd": said})
    assert [letter.version for letter in letters(stack, "odd", 1, 60)] == ["2026.7"]
    with ledger(stack, "odd") as (fates, _):
        (state,) = eventually(lambda: list(GroupMembers(fates, "workers").living().values()), 10)
    assert state["handler_versions"]["odd"] == "2026.7"
    assert "handlers (version 2026.7)" in command(stack, "status")
    assert "KAFKA_HANDLERS_VERSION" not in command(stack, "check", code=None)
    assert "KAFKA_HANDLERS_VERSION" not in worker.text
