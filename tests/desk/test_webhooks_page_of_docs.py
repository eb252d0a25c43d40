"""The receiver that docs/how-to/webhooks.md shows works as it stands there."""

import os
import re
import subprocess
import sys
import threading
import time

import pytest

from bridge.deadletters.alarms import webhook_address, webhook_sender
from bridge.deadletters.alarms.alarm_event import ALL
from bridge.deadletters.alarms.webhook_format import WebhookFormat, write_headers
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.alarms.webhook_signature import make_secret
from bridge.deadletters.db.database import Database
from bridge.settings.address_values import read_networks
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
    yield WebhookService(settings(url), database)
    database.close()


def test_it_takes_what_is_signed_once_and_nothing_else(hooks, tmp_path):
    assert CODE is not None
    port, allowed = free_port(), read_networks("127.0.0.1")
    address = f"http://127.0.0.1:{port}/"
    secret = hooks.add("ops", WebhookFormat.STANDARD, ALL, address, "", "ann").secret
    environ = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    (tmp_path / "receiver.py").write_text(CODE.group(1))
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen([sys.executable, str(tmp_path / "receiver.py")], env=environ, stdout=said)
        try:
            target = webhook_address.parse_target(address, allowed)
            eventually(
                lambda: webhook_sender.post_event(target, b"{}", signed("1", make_secret()), allowed).status == 401
            )
            message = hooks.test("ops", "ann")
            webhook_sender.send_due_events(hooks.settings, hooks.database, threading.Event())
            assert hooks.find_delivery(message).said == "HTTP 204"
            # It comes again by the same id: it is taken, and not said again.
            assert webhook_sender.post_event(target, b"{}", signed(message, secret), allowed).status == 204
            old = signed("2", secret, time.time() - 3_600)
            assert webhook_sender.post_event(target, b"{}", old, allowed).status == 401
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "said").read_text() == "A test of the webhook ops, by ann: it arrives.\n"


def signed(message, secret, at=None):
    return write_headers(WebhookFormat.STANDARD, message, int(at or time.time()), b"{}", secret)
