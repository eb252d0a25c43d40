"""The commands of docs/how-to/dead-letters.md that only look print what the page shows."""

import re
import shlex
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from celery import Celery

from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterStatus
from bridge.handler_routes import find_routes
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.doc_blocks import ROOT, read_blocks

PAGE: Final = ROOT / "docs" / "how-to" / "dead-letters.md"
COMMAND: Final = re.compile(r"bridge deadletters (groups|list|show|check|simulate)\b")
FIRST_FAILED: Final = int(time.time() * 1000) - 3_600_000
#: What of an output is another one with each run: times, which are of today here.
TIMES: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?")


def read_steps() -> Iterator[tuple[str, str]]:
    """Yield each command of the page that only looks, and what the page shows of its output."""
    for block in read_blocks(PAGE):
        yield from ((step.command, step.output) for step in block.steps() if COMMAND.match(step.command))


STEPS: Final = [*read_steps()]


@pytest.fixture
def desk(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """The five letters of the page, of a bank that takes no large amounts."""
    app = Celery("shop", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)

    def charge(order: Any) -> None: ...

    declare_handler(app, ("orders",), {"name": "shop.handlers.charge", "max_retries": 3})(charge)
    traceback = '  File "/srv/shop/bank.py", line 12, in charge\n    raise BankError(amount)\n'
    letters = [
        letter(
            identity=LetterIdentity("bridge", "orders", "log", 3, 2 + number, "shop.handlers.charge"),
            offset=number,
            handler="shop.handlers.charge",
            error_class="shop.bank.BankError",
            place="shop/bank.py:charge",
            version="1.4.1",
            key=f"customer-{4 - number}".encode(),
            value=b'{"card": "4242", "amount": 250}',
            error_message="the bank does not take amounts above 100 EUR",
            traceback=f"Traceback (most recent call last):\n{traceback}shop.bank.BankError: no\n",
            runs=runs,
            first_failed_at=FIRST_FAILED,
            failed_at=FIRST_FAILED + 7_000,
        )
        for number, runs in enumerate((4, 3, 3, 3, 3))
    ]
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), FIRST_FAILED, FIRST_FAILED).record(letters)
    yield Commands(monkeypatch, database_url, app, find_routes(app)[0])
    app.close()


def clean(text: str) -> str:
    """Return a text without times, and without the width of its lines and columns."""
    return " ".join(TIMES.sub("", text).replace("─", "").split())


@pytest.mark.parametrize(("line", "shown"), STEPS, ids=[line for line, _ in STEPS])
def test_a_command_that_only_looks_prints_what_the_page_shows(
    line: str, shown: str, desk: Commands, database: Database
):
    if "simulate" in line:
        # By then the page has replayed them with success; here that was a minute after the first failure.
        with database.writing() as connection:
            gone = FIRST_FAILED + 60_000
            letter_rows.change_letter_status(connection, range(1, 6), LetterStatus.OPEN, LetterStatus.RESOLVED, gone)
    ended = desk.run(*shlex.split(line, comments=True)[2:])
    assert ended.exit_code == 0, ended.output
    printed = clean(ended.output)
    assert [wanted for wanted in shown.splitlines() if clean(wanted) not in printed] == [], ended.output


def test_the_page_has_a_command_of_each_kind():
    assert {found[1] for line, _ in STEPS if (found := COMMAND.match(line))} == {
        *("groups", "list", "show", "check", "simulate"),
    }
