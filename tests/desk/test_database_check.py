"""What `bridge check` says of the desk's database, where one is named."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli import inspection_commands
from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.cli.inspection_commands import check_desk_database
from bridge.cli.root_command import cli
from bridge.deadletters.alarms.dead_letter_problems import check_database
from bridge.deadletters.db import schema_migration
from bridge.deadletters.db.database import Database
from tests.desk.commands import Commands
from tests.processes import ROOT

NOWHERE = "postgresql://desk:s3cret@127.0.0.1:1/letters"


def test_one_that_has_the_tables_answers(database: Database, database_url: str):
    assert check_database(database_url) == ("ok", f"the dead letters' database ({database.name}) answers.")


def test_one_that_is_empty_is_no_fault_and_stays_so(database_url: str):
    level, said = check_database(database_url)
    assert (level, "is created when it is first opened" in said) == ("ok", True)
    # Of SQLite not even a file.
    assert not database_url.startswith("sqlite") or not Path(database_url.removeprefix("sqlite:///")).exists()


def test_a_file_whose_folder_is_not_there_cannot_be_made(tmp_path: Path):
    level, said = check_database(f"sqlite:///{tmp_path}/nowhere/letters.db")
    assert level == "fault"
    assert "its folder must exist" in said


@pytest.mark.parametrize(("step", "level"), [("0001", "warning"), ("9999", "fault")])
def test_tables_of_another_version_are_said(database: Database, database_url: str, step: str, level: str):
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema_migration.VERSION_TABLE} SET version_num = '{step}'")
    found = check_database(database_url)
    assert (found.level, f"is at step {step}" in found.text) == (level, True)


def test_one_that_does_not_answer_is_a_fault_without_its_password():
    (found,) = check_desk_database({"DEADLETTERS_DATABASE_URL": NOWHERE})
    assert found.level == "fault"
    assert "127.0.0.1" in found.text
    assert "s3cret" not in found.text


def test_where_none_is_named_there_is_nothing_to_say():
    assert check_desk_database({}) == []


def test_the_command_says_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEADLETTERS_DATABASE_URL", NOWHERE)
    monkeypatch.setattr(inspection_commands, "find_celery_app", lambda name: None)
    monkeypatch.setattr(inspection_commands, "check_setup", lambda app, name: [])
    ended = CliRunner().invoke(cli, ["check", "--json"])
    assert ended.exit_code == FAULTS
    assert "could not be read" in ended.output


def test_a_command_that_looks_says_that_it_could_not_read(monkeypatch: pytest.MonkeyPatch):
    ended = Commands(monkeypatch, NOWHERE).run("list")
    assert ended.exit_code == NOT_FOUND
    assert "could not be read" in ended.output


def test_who_logs_all_that_is_of_interest_hears_nothing_of_alembic(tmp_path: Path):
    program = (
        "import logging; logging.basicConfig(level='INFO')\n"
        "from bridge.deadletters.db.database import Database\n"
        f"Database('sqlite:///{tmp_path}/letters.db').migrate()"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
