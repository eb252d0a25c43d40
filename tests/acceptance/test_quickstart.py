"""The quickstart does what it says, with the demo's embedded servers; tests/compose has it with Docker's."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc_blocks import ROOT, find_block
from tests.processes import eventually
from tests.quickstart import BLOCKS, DEMO, take_steps


@pytest.mark.slow
def test_the_quickstart_goes_from_a_first_record_to_a_first_replay_on_the_demos_servers(tmp_path: Path):
    ((_, arguments),) = [shlex.split(line)[1:] for line in find_block(BLOCKS, "make demo").commands()]
    environ = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    command = [sys.executable, "-m", "bridge", "demo", *arguments.removeprefix("ARGS=").split()]
    demo = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, start_new_session=True)

    def shell(script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace(".venv/bin/python", shlex.quote(sys.executable))
        return subprocess.run(["bash", "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)

    try:
        eventually(lambda: [*tmp_path.glob("bridge-demo-*/bridge")], 60, "the demo has its command")
        take_steps(shell, DEMO)
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(60)
