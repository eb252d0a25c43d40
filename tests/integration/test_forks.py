"""What is forked off does as what is started from nothing (tests/servers/forks.py)."""

import signal
import sys

import pytest

from tests.processes import Process, Stack
from tests.servers.forks import ROOT, Forked, Forks


@pytest.mark.parametrize("words", [["--version"], ["--no-such-option"], ["deadletters", "check", "1"]])
def test_a_command_prints_the_same_and_ends_the_same(stack: Stack, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    # So that it says what it was given, and looks at nothing else.
    stack.environ["HANDLERS"] = "tests.handlers.nowhere"
    ended = []
    for forks in (Process.forks, None):
        monkeypatch.setattr(Process, "forks", forks)
        process: Process = stack.start("command", sys.executable, "-m", "bridge", *words)
        assert isinstance(process._popen, Forked) == (forks is not None)
        ended.append((process.ends(), process.text))
    assert ended[0] == ended[1]


def test_a_signal_is_told_as_the_end(stack: Stack):
    stack.make_topics("orders")
    bridge = stack.bridge()
    bridge.signal(signal.SIGKILL)
    assert bridge.ends() == -9


def test_what_imports_would_read_is_read_by_a_start_from_nothing(stack: Stack, forks: Forks):
    command = (sys.executable, "-m", "bridge")
    assert forks.takes(command, stack.environ, stack.folder) is False
    assert forks.takes(command, stack.environ | {"NO_COLOR": "1"}, ROOT) is False
    assert forks.takes(command, stack.environ | {"PYTHONPATH": "/elsewhere"}, ROOT) is False
    assert forks.takes((sys.executable, "-c", "import bridge"), stack.environ, ROOT) is False
    assert forks.takes(command, stack.environ, ROOT) is True
