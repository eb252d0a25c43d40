"""The packages that commands of the dead-letter store import: imports are most of a command's time."""

import os
import subprocess
import sys
from pathlib import Path

from bridge.deadletters.db.database import Database
from tests.unit.test_imports import ROOT

#: One process for all: what one command has imported is loaded for those after it, too.
PROGRAM = """
import sys
from bridge.cli import main
for command in {commands}:
    sys.argv = ['bridge', 'deadletters', command]
    try:
        main()
    except SystemExit as ended:
        print(command, 'ended with', ended.code or 0, [name for name in {packages} if name in sys.modules])
"""
COMMANDS = ("list", "groups", "stats", "plans")
#: What migrates the tables, sends webhooks, serves the console and shows metrics.
UNUSED = ("alembic", "cryptography.fernet", "httpcore2", "prometheus_client", "starlette", "jinja2")


def test_a_command_that_only_reads_letters_imports_neither_migration_nor_webhooks_nor_metrics(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/letters.db"
    database = Database(url)
    database.migrate()
    database.close()
    servers = {"CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    environ = {**os.environ, **servers, "HANDLERS": "tests.handlers.simple", "DEADLETTERS_DATABASE_URL": url}
    program = PROGRAM.format(commands=COMMANDS, packages=UNUSED)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, check=False, capture_output=True, text=True
    )
    said = [line for line in ended.stdout.splitlines() if "ended with" in line]
    assert said == [f"{command} ended with 0 []" for command in COMMANDS], ended.stderr
