"""A variable of the desk that is misspelt: a fault where the desk is opened, and a warning elsewhere."""

import sys

import pytest

from tests.delivery_checks import command
from tests.processes import Stack, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]

pytestmark = [pytest.mark.timeout(200)]


def test_the_desk_is_not_opened_with_a_variable_that_there_is_not_and_bridges_and_workers_run_and_say_it(stack: Stack):
    stack.environ["DEADLETTERS_MASKS"] = "*: password"
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    said = "there is no setting DEADLETTERS_MASKS: did you mean DEADLETTERS_MASK?"
    for words in (["list"], ["record"], ["serve"], ["migrate"]):
        assert said in command(stack, "deadletters", *words, code=1)
    assert not (stack.folder / "letters.db").exists()
    both = stack.start("both", sys.executable, "-m", "bridge", "run", "--record")
    assert both.ends(60) == 1
    assert said in both.text
    assert said in command(stack, "check", code=None)
    stack.make_topics("orders")
    assert said in stack.worker().says(said)
    assert said in stack.bridge().says(said)
