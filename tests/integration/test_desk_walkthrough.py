"""A walk through the desk as a user takes it: letters are recorded, listed, understood, mended and sent back."""

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.command_io import BAD, FAULTS, INTERRUPTED, NOT_FOUND, OK
from tests.delivery_checks import choose
from tests.processes import ROOT, Process, Stack, eventually

#: Each command is a process, which takes seconds to start on a busy machine.
pytestmark = pytest.mark.timeout(300)


class Desk:
    """`bridge deadletters …`, in processes of their own, on a SQLite file."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{folder}/letters.db"
        stack.environ["BRIDGE_HTTP_PORT"] = "0"

    def run(self, *words: str | int, code: int = OK) -> str:
        """What it printed; it must end with this code."""
        command = (sys.executable, "-m", "bridge", "deadletters", *map(str, words))
        process: Process = self._stack.start("command", *command)
        assert process.ends(120) == code, f"{words}:\n{process.text}"
        return process.text

    def given(self, *words: str | int, code: int = OK) -> Any:
        """Its JSON, beside which it may have said something on stderr."""
        lines = self.run(*words, "--json", code=code).splitlines()
        begin = next(at for at, line in enumerate(lines) if line[:1] in ("[", "{"))
        return json.JSONDecoder().raw_decode("\n".join(lines[begin:]))[0]


@pytest.fixture
def desk(stack: Stack, tmp_path: Path) -> Desk:
    return Desk(stack, tmp_path)


def test_letters_are_recorded_understood_mended_and_sent_back(stack: Stack, desk: Desk, tmp_path: Path):
    mended = tmp_path / "mended"
    choose(stack, {"odd": {"commit": "completion"}})
    stack.make_topics("odd")
    stack.worker(wait=False)
    stack.bridge()
    first, *_ = stack.produce("odd", *[{"odd": {"mend": str(mended)}}] * 7, key=b"4711")
    stack.dead("odd", 7)

    assert [each["id"] for each in desk.given("list", "--from-topic")] == [None] * 7
    desk.run("record", "--once")
    found = desk.given("list", "--status", "open", "--key", "4711")
    assert len(found) == 7
    (group,) = desk.given("groups")
    assert (group["open"], group["where"].rpartition("/")[2]) == (7, "fates.py:act")
    page = desk.run("show", first)
    assert '"mend"' in page
    assert "odd: dead" in page

    # Sent back before it is mended, it dies again, and the canary keeps the others from that.
    refused = desk.run("replay", "--group", group["id"], code=2)
    assert "pass --yes" in refused
    recorder = stack.start("recorder", sys.executable, "-m", "bridge", "deadletters", "record")
    stopped = desk.given("replay", "--group", group["id"], "--canary", "--wait", "--yes", code=BAD)
    assert stopped["outcomes"] == {"dead": 1, "waiting": 6}
    desk.run("plans", "show", stopped["plan"], code=BAD)

    mended.touch()
    ended = desk.given("replay", "--group", group["id"], "--canary", "--wait", "--yes")
    assert ended["outcomes"] == {"done": 7}
    assert {each["status"] for each in desk.given("list")} == {"resolved"}
    assert [each["id"] for each in desk.given("plans")] == [ended["plan"], stopped["plan"]]
    assert "died: " in desk.run("show", found[-1]["id"])
    assert recorder.terminate() == 0


@pytest.mark.slow
def test_ctrl_c_in_a_replay_says_what_was_sent_and_how_to_go_on(stack: Stack, desk: Desk, tmp_path: Path):
    mended = tmp_path / "mended"
    choose(stack, {"odd": {"commit": "completion"}})
    stack.make_topics("odd")
    stack.worker(wait=False)
    stack.bridge()
    stack.produce("odd", *[{"odd": {"mend": str(mended)}}] * 6)
    stack.dead("odd", 6)
    desk.run("record", "--once")
    mended.touch()

    command = (sys.executable, "-m", "bridge", "deadletters", "replay", "--yes", "--rate", "0.5", "--wait")
    replay = stack.start("command", *command)
    eventually(lambda: len(stack.done("odd")) >= 1, 60, "the first is done")
    replay.signal(signal.SIGINT)
    assert replay.ends(60) == INTERRUPTED
    said = re.search(r"interrupted: (\d) of 6 were sent and will run; (\d) were not sent\.", replay.text)
    assert said is not None, replay.text
    assert int(said[1]) + int(said[2]) == 6
    assert "to resume: bridge deadletters plans apply 1" in replay.text
    assert "Traceback" not in replay.text
    assert desk.given("plans")[0]["state"] == "stopped"

    ended = desk.given("plans", "apply", 1, "--yes", "--wait")
    assert ended["outcomes"] == {"done": 6}
    # Each was sent once, before or after.
    assert len(stack.done("odd")) == 6


@pytest.mark.slow
def test_letters_are_looked_at_in_their_topics_without_a_database_or_its_libraries(stack: Stack, desk: Desk):
    choose(stack, {"odd": {"commit": "completion"}})
    stack.make_topics("odd", "payments.DLT")
    stack.worker(wait=False)
    stack.bridge()
    first, second = stack.produce("odd", {"odd": {"dead": True}}, {"odd": {"dead": True}}, key=b"4711")
    stack.dead("odd", 2)
    stack.produce("payments.DLT", {"id": 1}, headers=[("kafka_dlt-original-topic", b"payments")])
    # As where the extra is not installed.
    (stack.folder / "sitecustomize.py").write_text("import sys\nsys.modules['alembic'] = None\n")
    around = stack.environ.get("PYTHONPATH", "")
    stack.environ["PYTHONPATH"] = f"{stack.folder}:{ROOT}:{around}"

    refused = desk.run("list", code=NOT_FOUND)
    assert "pip install '.[deadletters]'" in refused
    found = desk.given("list", "--from-topic", "--key", "4711", "--limit", 1)
    assert [(each["offset"], each["id"], each["handler"]) for each in found] == [(1, None, "odd")]
    theirs = desk.given("list", "--from-topic", "--topics", stack.topic("payments.DLT"))
    assert [each["origin"] for each in theirs] == ["spring"]
    page = desk.given("show", first, "--from-topic")
    assert json.loads(page["value"]) == {"odd": {"dead": True}}
    assert (page["status"], page["deliveries"][0]["fate"]) == (None, "dead")
    lies = stack.dead_letters("odd")[1].record
    assert desk.given("show", f"{lies.topic()}-0-1", "--from-topic")["offset"] == 1
    assert "look further back" in desk.run("show", f"{stack.topic('odd')}-0-99", "--from-topic", code=FAULTS)
    assert second == f"{stack.topic('odd')}-0-1"
