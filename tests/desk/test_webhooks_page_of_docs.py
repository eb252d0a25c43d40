"""The receiver that docs/how-to/webhooks.md shows works as it stands there."""

import os
import re
import subprocess
import sys
import threading
import time

import pytest

from bridge.deadletters.store.database import Database
from bridge.deadletters.webhooks import addresses, posting, sending
from bridge.deadletters.webhooks.events import ALL
from bridge.deadletters.webhooks.formats import Format, headers, new_secret
from bridge.deadletters.webhooks.webhooks import Webhooks
from bridge.settings.addresses import networks
from tests.desk.webhook_sender import settings
from tests.processes import ROOT, eventually
from tests.servers.process import free_port

CODE = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "webhooks.md").read_text(), re.DOTALL)


@pytest.fixture
def hooks(tmp_path):
    """A desk's webhooks."""
    url = f"sqlite:///{tmp_path}/letters.db"
    database = Database(url)
    database.migrate()
    yield Webhooks(settings(url), database)
    database.close()


def test_it_takes_what_is_signed_once_and_nothing_else(hooks, tmp_path):
    assert CODE is not None
    port, allowed = free_port(), networks("127.0.0.1")
    address = f"http://127.0.0.1:{port}/"
    secret = hooks.add("ops", Format.STANDARD, ALL, address, "", "ann").secret
    environ = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    (tmp_path / "receiver.py").write_text(CODE.group(1))
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen([sys.executable, str(tmp_path / "receiver.py")], env=environ, stdout=said)
        try:
            target = addresses.read(address, allowed)
            eventually(lambda: posting.post(target, b"{}", signed("1", new_secret()), allowed).status == 401)
            message = hooks.test("ops", "ann")
            sending.send(hooks.settings, hooks.database, threading.Event())
            assert hooks.told(message).said == "HTTP 204"
            # It comes again by the same id: it is taken, and not said again.
            assert posting.post(target, b"{}", signed(message, secret), allowed).status == 204
            old = signed("2", secret, time.time() - 3_600)
            assert posting.post(target, b"{}", old, allowed).status == 401
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "said").read_text() == "A test of the webhook ops, by ann: it arrives.\n"


def signed(message, secret, at=None):
    return headers(Format.STANDARD, message, int(at or time.time()), b"{}", secret)
