"""The desk's commands where the desk's own libraries are not: said in a line, and asked for by nobody else."""

import subprocess
import sys

import pytest

from bridge.cli.answers import NOT_FOUND
from tests.unit.test_imports import ROOT

WITHOUT = """
import sys
sys.modules['{library}'] = None
import typer
from bridge.cli.deadletters.opening import need_extra
typer.run(need_extra)
"""


def ran(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("library", ["alembic", "jsonpointer"])
def test_a_desk_command_without_its_extra_says_in_a_line_what_to_install(library: str):
    ended = ran(WITHOUT.format(library=library))
    assert ended.returncode == NOT_FOUND
    assert ended.stderr.splitlines() == [
        f"the dead-letter desk needs {library}; in a clone of the project's repository: pip install '.[deadletters]'."
    ]


#: A whole command line in a process that has the app, and no SQLAlchemy.
COMMAND = """
import os, sys
sys.modules['sqlalchemy'] = None
os.environ['HANDLERS'] = 'tests.handlers.simple'
sys.argv = ['bridge', *{arguments}]
from bridge.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        "run --record",
        "deadletters import letters.jsonl",
        pytest.param("deadletters record --once", marks=pytest.mark.slow),
        pytest.param("deadletters list", marks=pytest.mark.slow),
        pytest.param("redrive orders --from 1 --to 2", marks=pytest.mark.slow),
    ],
)
def test_commands_without_the_extra_end_before_they_connect_to_anything(arguments: str):
    ended = ran(COMMAND.format(arguments=arguments.split()))
    assert ended.returncode == NOT_FOUND, ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        "the dead-letter desk needs sqlalchemy; in a clone of the project's repository: pip install '.[deadletters]'."
    )
    assert "Traceback" not in ended.stderr


def test_the_commands_load_without_the_desks_database():
    libraries = ("sqlalchemy", "alembic", "jsonpatch", "psycopg")
    program = f"import bridge.cli, sys; sys.exit(str([each for each in {libraries} if each in sys.modules] or ''))"
    assert ran(program).stderr.strip() == ""
