"""`bridge demo`, as a newcomer runs it."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.processes import eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
#: What becomes of each kind of order: the ends of its two deliveries, to `charge` and to `notify`.
ENDS = {
    "ordinary": ("done", "done"),
    "bank away, then back": ("done", "done"),
    "bank busy, says when": ("done", "done"),
    "bank hangs once": ("done", "done"),
    "bank away for good": ("dead: exhausted", "done"),
    "bank closed for hours": ("dead: expired", "done"),
    "card declined": ("dead: permanent", "done"),
    "error without a text": ("dead: permanent", "done"),
    "too much for a card": ("dead: permanent", "done"),
    "unknown currency: bug": ("dead: permanent", "done"),
    "mail away, then back": ("done", "done"),
    "mail away for good": ("done", "dead: exhausted"),
    "no such mailbox": ("done", "dead: permanent"),
    "amount missing": ("dead: undecodable", "dead: undecodable"),
    "not JSON": ("dead: undecodable", "dead: undecodable"),
    "deleted (null value)": ("done", "done"),
}
#: Retries of one order of a kind: exactly where it dies, for its dead letter knows; at most, where only events tell.
RETRIES = {
    "bank away, then back": 2,
    "bank busy, says when": 1,
    "bank hangs once": 1,
    "bank away for good": 3,
    "mail away, then back": 2,
    "mail away for good": 3,
}


@pytest.fixture
def mark() -> str:
    """A word in the environment of every process of one demo."""
    return uuid.uuid4().hex


@pytest.fixture
def demo_environment(mark: str, tmp_path: Path) -> dict[str, str]:
    """What the shell of a newcomer may hold; temporary files go where they can be counted."""
    return {**os.environ, "DEMO_TEST": mark, "TMPDIR": str(tmp_path), "COLUMNS": "110", "BRIDGE_GROUP": "mine"}


def processes_with(mark: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue  # It has just ended, or is another user's.
    return found


def rows_of(output: str) -> dict[str, tuple[int, str, str, int]]:
    """The table: kind of order → how many were sent, their ends for charge and notify, retries."""
    _, _, shown = output.partition("What became of every record")
    rows = {}
    for line in shown.splitlines():
        if cells := re.match(r"(\S.*?)\s{2,}(\d+)  (\d.*?)\s{2,}(\d.*?)(?:\s{2,}(\d+))?\s*$", line):
            rows[cells[1]] = (int(cells[2]), cells[3], cells[4], int(cells[5] or 0))
    return rows


def test_the_demo_ends_with_what_became_of_every_record(demo_environment, mark, tmp_path):
    (arguments,) = re.findall(r'make demo ARGS="(.+)"', README)
    command = [sys.executable, "-m", "bridge", "demo", *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, env=demo_environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(done.stdout)
    (shown,) = re.findall(r"^order +sent.*?(?=^```)", README, re.DOTALL | re.MULTILINE)
    for kind, shown_row in rows_of(f"What became of every record\n{shown}").items():
        assert rows[kind][:3] == shown_row[:3], "the README shows another row"
    total = rows.pop("all")
    assert total[0] == 64 == sum(row[0] for row in rows.values())
    for kind, (count, *ends, retries) in rows.items():
        assert ends == [f"{count} {end}" for end in ENDS[kind]], kind
        most = count * RETRIES.get(kind, 0)
        assert retries == most if "dead: exhausted" in ENDS[kind] else retries <= most, kind
    assert total[3] == sum(retries for *_, retries in rows.values())
    assert rows.keys() == ENDS.keys(), "a seed is wanted whose orders are of every kind"
    assert processes_with(mark) == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def running_demo(demo_environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", "demo", "--seed", "7"],
        cwd=ROOT,
        env=demo_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A group of its own, as a shell makes one: Ctrl-C goes to all of it.
        start_new_session=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_the_demo_prints_a_link_that_opens_the_console_with_its_dead_letters(running_demo, mark):
    assert running_demo.stdout is not None
    link = next(found[0] for line in running_demo.stdout if (found := re.search(r"http://\S+/sign-in/\S+", line)))
    with httpx2.Client(base_url=link.partition("/sign-in/")[0], timeout=20) as browser:
        assert browser.post(link).status_code == 303
        page = eventually(lambda: p if "/letters/" in (p := browser.get("/letters").text) else None, 60)
        assert "letters match" in page or "letter matches" in page
        overview = eventually(lambda: p if ">runs<" in (p := browser.get("/").text) else None, 30)
        assert "Topics and handlers" in overview
        assert browser.post(link).status_code == 403
    os.killpg(running_demo.pid, signal.SIGINT)
    running_demo.communicate(timeout=30)
    assert processes_with(mark) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="counts processes in /proc")
@pytest.mark.parametrize(
    "moment", [r"^ +1 s ", r"[1-9]\d* retrying"], ids=["at its start", "while orders wait for a retry"]
)
def test_ctrl_c_ends_the_demo_with_the_table_and_leaves_nothing_behind(running_demo, mark, tmp_path, moment):
    assert running_demo.stdout is not None
    for line in running_demo.stdout:
        if re.search(moment, line):
            break
    assert len(processes_with(mark)) >= 2
    os.killpg(running_demo.pid, signal.SIGINT)
    rest, _ = running_demo.communicate(timeout=30)
    assert running_demo.returncode == 0, rest
    assert "What became of every record" in rest
    assert "Traceback" not in rest
    assert processes_with(mark) == []
    assert list(tmp_path.iterdir()) == []
