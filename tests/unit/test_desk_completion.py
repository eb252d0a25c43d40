"""What a shell completes: quick, silent, and nothing where the app cannot be imported."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.cli.deadletters.filter_options import IMPORT_SECONDS, find_completion
from bridge.deadletters.model.letter_filter import FILTER_FIELDS

HANDLERS = """
import os, sys, time
print("a module that talks")
os.write(2, b"past Python too")
time.sleep(float(os.environ.get("SLOW", 0)))
if os.environ.get("BROKEN"):
    raise RuntimeError("broken")
from tasks import handler

@handler("orders")
def charge(order): ...

@handler("refunds")
def refund(order): ...
"""


def completed(folder: Path, line: str, **environ: str) -> list[str]:
    """What bash would be offered at the end of a line."""
    (folder / "shop_handlers.py").write_text(HANDLERS)
    words = line.split(" ")
    ended = subprocess.run(
        [sys.executable, "-m", "bridge"],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "CELERY_"))},
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HANDLERS": "shop_handlers",
            "_BRIDGE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("bridge deadletters list --status re", ["replaying", "resolved"], marks=pytest.mark.slow),
        pytest.param("bridge deadletters list --reason e", ["exhausted", "expired"], marks=pytest.mark.slow),
        ("bridge deadletters replay --handler ", ["shop_handlers.charge", "shop_handlers.refund"]),
        pytest.param("bridge deadletters replay --topic o", ["orders"], marks=pytest.mark.slow),
        pytest.param("bridge deadletters simulate shop_handlers.r", ["shop_handlers.refund"], marks=pytest.mark.slow),
        pytest.param("bridge deadletters sim", ["simulate"], marks=pytest.mark.slow),
    ],
)
def test_names_are_completed(tmp_path, line, offered):
    assert completed(tmp_path, line) == offered


def test_the_reasons_and_states_that_begin_so_are_offered():
    completions = {field.word: complete for field in FILTER_FIELDS if (complete := find_completion(field))}
    assert completions["reason"]("e") == ["exhausted", "expired"]
    assert completions["status"]("re") == ["replaying", "resolved"]


def test_an_app_that_cannot_be_imported_completes_nothing_and_says_nothing(tmp_path):
    assert completed(tmp_path, "bridge deadletters list --handler ", BROKEN="1") == []


@pytest.mark.slow
def test_an_app_that_is_slow_is_not_waited_for(tmp_path):
    began = time.monotonic()
    assert completed(tmp_path, "bridge deadletters list --handler ", SLOW="60") == []
    assert time.monotonic() - began < IMPORT_SECONDS + 30


def test_the_script_for_the_shell_is_shown_under_the_commands_own_name():
    # `; true`: else bash becomes the command, and is no shell that it runs in.
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m bridge --show-completion; true"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_BRIDGE_COMPLETE=complete_bash" in ended.stdout
    assert "complete -o default -F _bridge_completion bridge" in ended.stdout
