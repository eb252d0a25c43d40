"""The units in `deploy/systemd` run commands that there are, give processes time to end, and take rights away."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from bridge.settings.setting_defaults import EnvironmentSettings
from tests.doc_blocks import ROOT, parse_bridge

UNITS: Final = {file.name: file.read_text() for file in sorted((ROOT / "deploy" / "systemd").iterdir())}
INSTALLED: Final = "/opt/celery-kafka-bridge/venv/bin/"


def test_each_process_has_a_unit_and_each_command_is_one():
    commands = [
        words.removeprefix(INSTALLED).split()
        for text in UNITS.values()
        for words in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    ]
    assert [words[:3] for words in commands if words[0] == "bridge"] == [
        ["bridge", "run"],
        ["bridge", "deadletters", "serve"],
        ["bridge", "deadletters", "record"],
    ]
    for words in commands:
        if words[0] == "bridge":
            parse_bridge([word for word in words[1:] if word != "$OPTIONS"])
    assert [words[:4] for words in commands if words[0] != "bridge"] == [["celery", "-A", "tasks", "worker"]]


def test_each_unit_is_restarted_has_time_to_end_and_signals_its_main_process_alone():
    for text in UNITS.values():
        assert {"Restart=always", "StartLimitIntervalSec=0", "KillMode=mixed"} <= {*text.splitlines()}
        (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        # A worker's running handlers have 20 s (worker_soft_shutdown_timeout).
        assert int(seconds) >= 30


def test_the_units_take_the_same_rights_away():
    hardened = {text.partition("NoNewPrivileges=yes")[2] for text in UNITS.values()}
    assert len(hardened) == 1
    assert "ProtectSystem=strict" in hardened.pop()


def test_the_page_puts_the_database_where_the_units_write_and_gives_the_second_worker_a_port_of_its_own():
    page = (ROOT / "docs" / "how-to" / "systemd.md").read_text()
    (folder,) = set(re.findall(r"sqlite:///(/var/lib/[\w-]+)/", page))
    owners = {name for name, text in UNITS.items() if f"StateDirectory={folder.rpartition('/')[2]}\n" in text}
    assert {"celery-kafka-console.service", "celery-kafka-recorder.service"} <= owners
    ports = {
        str(field.default) for name, field in EnvironmentSettings.model_fields.items() if name.endswith("_PORT")
    } | {"8093"}
    (port,) = re.findall(r"^echo WORKER_METRICS_PORT=(\d+) > /etc/celery-kafka-bridge/worker-2$", page, re.MULTILINE)
    assert port not in ports


@pytest.mark.servers
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_accepts_the_units_and_finds_them_little_exposed(tmp_path: Path):
    # The commands are there when the page has been followed; here they are those of the tests' environment.
    for name, text in UNITS.items():
        (tmp_path / name).write_text(text.replace(INSTALLED, f"{Path(sys.executable).parent}/"))
    files = [str(tmp_path / name) for name in UNITS]
    for command in (("verify",), ("security", "--offline=true", "--threshold=20")):
        done = subprocess.run(
            ["systemd-analyze", *command, *files], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert command[0] != "verify" or not done.stderr
