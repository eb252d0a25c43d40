"""The desk's commands where the desk's own libraries are not: said in a line, and asked for by nobody else."""

import subprocess
import sys

import pytest

from bridge.cli.command_io import NOT_FOUND
from tests.unit.test_imports import ROOT

WITHOUT = """
import sys
sys.modules['{library}'] = None
import typer
from bridge.cli.deadletters.desk_access import require_extra as need_extra
typer.run(need_extra)
"""


def ran(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("library", [pytest.param("alembic", marks=pytest.mark.slow), "jsonpointer"])
def test_a_desk_command_without_its_extra_says_in_a_line_what_to_install(library: str):
    ended = ran(WITHOUT.format(library=library))
    assert ended.returncode == NOT_FOUND
    assert ended.stderr.splitlines() == [
        f"the dead-letter store needs {library}; in a clone of the project's repository: pip install '.[deadletters]'."
    ]


#: Whole command lines in a process that has the app, and no SQLAlchemy.
COMMANDS = """
import os, sys
sys.modules['sqlalchemy'] = None
os.environ['HANDLERS'] = 'tests.handlers.simple'
from bridge.cli import main
for line in {lines}:
    sys.argv = ['bridge', *line.split()]
    try:
        main()
    except SystemExit as ended:
        print(line, 'ended with', ended.code, file=sys.stderr)
"""


def test_commands_without_the_extra_end_before_they_connect_to_anything():
    lines = (
        "run --record",
        "deadletters import letters.jsonl",
        "deadletters record --once",
        "deadletters list",
        "redrive orders --from 1 --to 2",
    )
    ended = ran(COMMANDS.format(lines=lines))
    assert ended.returncode == 0, ended.stderr
    needs = (
        "the dead-letter store needs sqlalchemy; in a clone of the project's repository: pip install '.[deadletters]'."
    )
    said = ended.stderr.splitlines()
    assert [
        said[said.index(end) - 1] if (end := f"{line} ended with {NOT_FOUND}") in said else f"no end: {line}"
        for line in lines
    ] == [needs] * len(lines), ended.stderr
    assert "Traceback" not in ended.stderr
