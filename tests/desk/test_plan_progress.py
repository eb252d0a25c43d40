"""How far long work is, a person on a terminal sees; a script's log has nothing of it."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from bridge.cli.deadletters import plan_run
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.bulk_plan import PlanState
from tests.desk.letters import letter
from tests.desk.test_letter_writer import record
from tests.processes import OURS, ROOT
from tests.unit.test_plan_run import plan

LETTERS = 600


@pytest.fixture
def command(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """An export of some letters, and its environment."""
    url = f"sqlite:///{tmp_path}/letters.db"
    database = Database(url)
    database.migrate()
    record(database, *map(letter, range(LETTERS)))
    database.close()
    around = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    ours = {"DEADLETTERS_DATABASE_URL": url, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "TERM": "xterm"}
    ours |= {"CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "HANDLERS": "tests.handlers.simple"}
    words = [sys.executable, "-m", "bridge", "deadletters", "export", "--to", str(tmp_path / "letters.jsonl")]
    return words, {**around, **ours}


def read_all(terminal: int) -> str:
    """What was written to a terminal until nobody has it, without what moves its cursor."""
    found = b""
    # Linux says so where the other end is closed.
    with suppress(OSError):
        while some := os.read(terminal, 10_000):
            found += some
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", found.decode())


@pytest.mark.slow
def test_on_a_terminal_it_is_seen_how_far_an_export_is(command: tuple[list[str], dict[str, str]]):
    words, environ = command
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        said = read_all(ours)
        assert running.wait(60) == 0, said
    os.close(ours)
    assert f"exported: {LETTERS}" in said


@pytest.mark.slow
def test_where_there_is_none_a_log_has_nothing_of_it(command: tuple[list[str], dict[str, str]]):
    words, environ = command
    ended = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=90, check=True)
    assert "exported:" not in ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_a_plan_that_is_applied_is_a_bar_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool):
    seen = io.StringIO()
    monkeypatch.setattr(
        plan_run, "error_console", Console(file=seen, force_terminal=terminal, width=100, highlight=False)
    )
    stands = plan(PlanState.APPLYING, done=1, sent=2, waiting=5)
    with plan_run._show_plan_progress(stands) as heard:
        heard(stands)
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.getvalue())
    assert ("3/8" in said, "1 ended" in said) == (terminal, terminal)
    assert terminal or not said.strip()
