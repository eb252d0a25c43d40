"""The packages that commands of the dead-letter store import: imports are most of a command's time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.deadletters.db.database import Database
from tests.unit.test_imports import ROOT

PROGRAM = """
import sys
from bridge.cli import main
sys.argv = ['bridge', *{words}]
try:
    main()
except SystemExit as ended:
    print('ended with', ended.code or 0)
print([name for name in {packages} if name in sys.modules])
"""
#: What migrates the tables, sends webhooks, serves the console and shows metrics.
UNUSED = ("alembic", "cryptography.fernet", "httpcore2", "prometheus_client", "starlette", "jinja2")


@pytest.mark.parametrize("words", [("list",), ("groups",), ("stats",), ("plans",)], ids=" ".join)
def test_a_command_that_only_reads_letters_imports_neither_migration_nor_webhooks_nor_metrics(words, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/letters.db"
    database = Database(url)
    database.migrate()
    database.close()
    servers = {"CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    environ = {**os.environ, **servers, "HANDLERS": "tests.handlers.simple", "DEADLETTERS_DATABASE_URL": url}
    program = PROGRAM.format(words=("deadletters", *words), packages=UNUSED)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, check=False, capture_output=True, text=True
    )
    assert ended.stdout.splitlines()[-2:] == ["ended with 0", "[]"], ended.stderr
