"""A recorder that is frozen in the midst of a transaction: none waits for it for ever, and nothing is there twice."""

import signal
import sys
import time
from itertools import count

import pytest

from bridge.deadletters.db.postgresql_engine import SILENT_FOR
from bridge.deadletters.db.table_definitions import tallies
from tests.desk.recorders import bury, offsets, once_each, recorded, recorder
from tests.processes import Process, Served, Stack, eventually, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def desk(stack: Stack, database_url: str) -> Stack:
    """A stack with a topic, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq")
    return stack


def is_stopped(process: Process) -> bool:
    with open(f"/proc/{process.pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def frozen(desk: Stack, step: str) -> tuple[Served, int]:
    """A recorder that froze after a step of a transaction, and how many letters have been buried."""
    process = recorder(
        desk, wait=False, TEST_KILL_AFTER=step, TEST_KILL_BY="SIGSTOP", HANDLERS="tests.handlers.recorder_killed"
    )
    for number in count():
        if is_stopped(process):
            return process, number
        # One after another, so that there is more than one transaction.
        bury(desk, [number])
        time.sleep(0.1)
        assert number < 300, "it does not freeze"
    raise AssertionError


def commands_write(desk: Stack) -> bool:
    command = desk.start("note", sys.executable, "-m", "bridge", "deadletters", "note", "1", "-m", "seen")
    assert command.ends(90) in (0, 2), command.text
    return bool(command.exit_code == 0)


@pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("step", ["position", "letters"])
def test_postgresql_takes_a_frozen_recorder_s_transaction_back_and_others_go_on(
    desk: Stack, database_url: str, step: str
):
    process, number = frozen(desk, step)
    other = recorder(desk, wait=False)
    bury(desk, range(number, number + 20))
    number += 20
    eventually(lambda: len(offsets(database_url)) == number, 60 + 2 * SILENT_FOR, "the other goes on")
    assert commands_write(desk)
    assert is_stopped(process)
    process.signal(signal.SIGCONT)
    # It may have been in the midst of noting where to begin.
    told = ("nothing is recorded", "where to begin is not known")
    eventually(lambda: any(words in process.text for words in told), 30, "it says that its transaction is gone")
    bury(desk, range(number, number + 20))
    number += 20
    once_each(database_url, number)
    assert {row["status"]: row["count"] for row in recorded(database_url, tallies)} == {"open": number}
    eventually(lambda: process.ready() and other.ready())


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_of_sqlite_who_waits_says_which_process_is_frozen_and_goes_on_when_it_wakes(desk: Stack, database_url: str):
    process, number = frozen(desk, "letters")
    other = recorder(desk, wait=False)
    other.says(f"process {process.pid} (", 90)
    assert "has it and is stopped: wake it (kill -CONT) or end it" in other.text
    process.signal(signal.SIGCONT)
    bury(desk, range(number, number + 20))
    once_each(database_url, number + 20)
    assert commands_write(desk)
    eventually(lambda: process.ready() and other.ready())


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_of_sqlite_a_frozen_recorder_that_is_ended_frees_the_file_and_loses_nothing(desk: Stack, database_url: str):
    process, number = frozen(desk, "letters")
    other = recorder(desk, wait=False)
    other.says("is stopped: wake it (kill -CONT) or end it", 90)
    process.kill()
    once_each(database_url, number)
    eventually(other.ready)
