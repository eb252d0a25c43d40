"""What was not run is said at the end, in one line, with how to get it."""

import os
import subprocess
import sys

import pytest

from tests.servers.missing import need, not_run
from tests.servers.process import ServerFailed
from tests.servers.redis import RedisServer


def test_what_was_not_run_is_counted_by_reason_most_first():
    reasons = ["Skipped: no Kafka: install java", "Skipped: no kcat", "Skipped: no Kafka: install java"]
    assert not_run(reasons) == "3 selected tests were NOT run: 2 (no Kafka: install java); 1 (no kcat)"
    assert not_run([]) == "every selected test was run"


def test_what_is_missing_skips_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch):
    need(None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server"):
        need("no server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        need("no server")


def test_the_last_line_of_a_run_says_what_was_not_run():
    # The plugins of the development tools take longer to import than the tests of the file to run.
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-q", "tests/unit/test_topic_names.py"]
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "every selected test was run" in printed


def test_a_server_that_does_not_start_leaves_no_folder():
    server = RedisServer(no_such_setting="yes")
    with pytest.raises(ServerFailed), server:
        pass
    assert not server.folder.exists()
