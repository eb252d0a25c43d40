"""Who writes to a SQLite file, as Linux tells it, and how it is said."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bridge.deadletters.db.database_engine import PROC_LOCKS, describe_lock_holder, find_writing_process

WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("begun", flush=True)
sys.stdin.read()
"""

LINES = (
    "1: POSIX  ADVISORY  READ 11 fe:00:77 128 128",
    "2: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF",
    "3: POSIX  ADVISORY  WRITE 13 fe:00:78 120 120",
    "4: -> POSIX  ADVISORY  WRITE 14 fe:00:77 120 120",
)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("5: POSIX  ADVISORY  WRITE 15 fe:00:77 120 120", 15),
        ("5: POSIX  ADVISORY  WRITE 15 fe:00:77 0 EOF", 15),
        ("5: POSIX  ADVISORY  WRITE 15 fe:00:77 121 122", None),
        ("5: POSIX  ADVISORY  WRITE 0 fe:00:77 120 120", None),
        ("5: OFDLCK ADVISORY  WRITE -1 fe:00:77 120 120", None),
    ],
)
def test_the_writer_is_the_process_that_has_the_byte_of_the_lock(line: str, found: int | None):
    assert find_writing_process([*LINES, line], 77) == found


@pytest.mark.skipif(not PROC_LOCKS.exists(), reason="this system does not list its locks")
def test_of_a_real_file_the_process_is_told_and_whether_it_is_frozen(tmp_path: Path):
    file = f"{tmp_path}/letters.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE letters (id INTEGER)")
        assert describe_lock_holder(file) == ""
        command = [sys.executable, "-c", WRITES, file]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert f"process {process.pid} (" in describe_lock_holder(file)
            assert "stopped" not in describe_lock_holder(file)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert "is stopped: wake it (kill -CONT) or end it" in describe_lock_holder(file)
            process.kill()
        assert describe_lock_holder(file) == ""


def test_of_what_is_no_file_nothing_is_told():
    assert describe_lock_holder(None) == describe_lock_holder("/missing/letters.db") == ""
