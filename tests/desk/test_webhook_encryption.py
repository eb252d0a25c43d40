"""The secrets and addresses of webhooks in the database: encrypted where a key is set, and sent as they are meant."""

import logging
import threading
from unittest.mock import Mock

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select

from bridge.cli.inspection_commands import check_desk_database
from bridge.deadletters.alarms import webhook_cipher, webhook_sender
from bridge.deadletters.alarms.webhook_format import WebhookFormat
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.alarms.webhook_signature import sign_message
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.recorder.background_duties import DUTIES
from lossless.backoff import Backoff
from tests.desk.webhook_sender import settings
from tests.servers.receiver import receiver

PATH = "/hooks/T0/s3cret"
PAGER_KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def there(tmp_path):
    """A receiver that listens."""
    with receiver(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What was not taken is tried again at once."""
    monkeypatch.setattr(webhook_sender, "RETRY_AFTER", Backoff(first=1, most=1))


@pytest.fixture
def new_hooks(database, database_url):
    """The webhooks of a process with these keys, the first of which encrypts."""
    return lambda *keys: WebhookService(settings(database_url, DEADLETTERS_SECRET_KEY=",".join(keys)), database)


@pytest.fixture
def key():
    return Fernet.generate_key().decode()


@pytest.fixture
def other():
    return Fernet.generate_key().decode()


def add(hooks, there, name="ops", format_=WebhookFormat.STANDARD, key=""):
    return hooks.add(name, format_, (), there.url, key, "ann").secret


def send(hooks, name="ops"):
    """The answer to a test event."""
    message = hooks.test(name, "ann")
    told = hooks.find_delivery(message)
    sender_settings = webhook_sender.SenderSettings.from_settings(hooks.settings)
    webhook_sender.WebhookSender(hooks.database, sender_settings, told.webhook_id, threading.Event(), []).run()
    return hooks.find_delivery(message)


def dump(database):
    """Every value of every table, as a backup has it."""
    with database.reading() as connection:
        return str([connection.execute(select(table)).all() for table in tables.metadata.sorted_tables])


def encrypt(hooks):
    """Do what a recorder does when it starts."""
    (duty,) = [each for each in DUTIES if each.what == "encrypting webhooks"]
    duty.do(Mock(webhooks=hooks), threading.Event())


def test_no_secret_and_no_address_is_in_the_database_or_a_backup_of_it(new_hooks, there, key):
    hooks = new_hooks(key)
    secret = add(hooks, there)
    add(hooks, there, "slack", WebhookFormat.SLACK)
    add(hooks, there, "pager", WebhookFormat.PAGERDUTY, PAGER_KEY)
    for name in ("ops", "slack", "pager"):
        send(hooks, name)
    found = dump(hooks.database)
    assert [each for each in (secret, secret.removeprefix("whsec_"), PATH, PAGER_KEY, key) if each in found] == []


def test_what_is_sent_is_signed_by_the_secret_that_was_shown_and_reaches_the_whole_address(new_hooks, there, key):
    hooks = new_hooks(key)
    secret = add(hooks, there)
    assert send(hooks).state == "sent"
    (got,) = there.got
    assert got.path == PATH
    at = int(got.headers["webhook-timestamp"])
    assert got.headers["webhook-signature"] == sign_message(got.id, at, got.raw.encode(), secret)
    add(hooks, there, "pager", WebhookFormat.PAGERDUTY, PAGER_KEY)
    send(hooks, "pager")
    assert there.got[-1].body["routing_key"] == PAGER_KEY


def test_a_webhook_is_shown_by_its_host_alone_whether_it_is_encrypted_or_not(new_hooks, there, key, other):
    add(new_hooks(key), there)
    assert new_hooks(key).list_webhooks()[0].address == f"http://127.0.0.1:{there.port}/…"
    for hooks in (new_hooks(), new_hooks(other)):
        assert hooks.list_webhooks()[0].address == "encrypted by a key that DEADLETTERS_SECRET_KEY does not have"


def test_without_a_key_all_is_as_it_was(new_hooks, there):
    hooks = new_hooks()
    assert add(hooks, there) in dump(hooks.database)
    encrypt(hooks)
    assert send(hooks).state == "sent"


def test_a_recorder_with_a_key_encrypts_what_was_plain_and_goes_on_to_send_it(new_hooks, there, key, caplog):
    plain = new_hooks()
    secret = add(plain, there)
    hooks = new_hooks(key)
    assert send(hooks).state == "sent"
    with caplog.at_level(logging.INFO):
        encrypt(hooks)
        encrypt(hooks)
    assert [each.getMessage() for each in caplog.records if "webhooks" in each.getMessage()] == [
        "encrypted webhooks=1 with the first key of DEADLETTERS_SECRET_KEY"
    ]
    found = dump(hooks.database)
    assert secret not in found
    assert PATH not in found
    assert send(hooks).state == "sent"


def test_a_new_key_before_the_old_one_replaces_it(new_hooks, there, key, other):
    add(new_hooks(key), there)
    both = new_hooks(other, key)
    assert send(both).state == "sent"
    encrypt(both)
    assert send(new_hooks(other)).state == "sent"
    assert send(new_hooks(key)).state == "waiting"


@pytest.mark.parametrize("left", ["none", "another"])
def test_without_its_key_nothing_is_sent_and_the_answer_says_which_setting_it_needs(
    new_hooks, there, key, other, left, caplog
):
    secret = add(new_hooks(key), there)
    hooks = new_hooks(other) if left == "another" else new_hooks()
    encrypt(hooks)
    told = send(hooks)
    assert (told.state, there.got) == ("waiting", [])
    assert "DEADLETTERS_SECRET_KEY" in told.said
    assert secret not in caplog.text
    assert send(new_hooks(key)).state == "sent"


def test_a_value_that_somebody_changed_in_the_database_is_not_sent(new_hooks, there, key):
    hooks = new_hooks(key)
    add(hooks, there)
    with hooks.database.writing() as connection:
        (kept,) = connection.execute(select(tables.webhooks.c.address)).scalars()
        changed = kept[:-10] + ("A" if kept[-10] != "A" else "B") + kept[-9:]
        connection.execute(tables.webhooks.update().values(address=changed))
    assert "DEADLETTERS_SECRET_KEY" in send(hooks).said
    assert there.got == []


def test_the_check_says_what_lies_plain_and_what_nobody_here_can_read(new_hooks, there, database_url, key, other):
    def said(keys=""):
        environ = {"DEADLETTERS_DATABASE_URL": database_url, "DEADLETTERS_SECRET_KEY": keys}
        return [(each.level, each.text) for each in check_desk_database(environ)[1:]]

    assert said() == []
    add(new_hooks(), there)
    ((level, text),) = said()
    assert level == "warning"
    assert "the secret and the address of 1 webhook are in the database and its backups as they are" in text
    assert "set DEADLETTERS_SECRET_KEY" in text
    ((level, text),) = said(key)
    assert (level, "start the recorder again" in text) == ("warning", True)
    encrypt(new_hooks(key))
    assert said(key) == []
    for keys in ("", other):
        ((level, text),) = said(keys)
        assert level == "warning"
        assert "the webhook ops is encrypted by a key that DEADLETTERS_SECRET_KEY does not have" in text


def test_no_key_is_in_a_repr(new_hooks, key):
    hooks = new_hooks(key)
    assert key not in repr(hooks) + repr(hooks.settings) + repr(
        webhook_sender.SenderSettings.from_settings(hooks.settings)
    )


@pytest.mark.parametrize("changed", ["address", "format"])
def test_a_secret_is_sent_to_no_other_address_and_in_no_other_format_than_it_was_added_for(
    new_hooks, there, key, changed, database_url
):
    hooks = new_hooks(key)
    add(hooks, there, "pager", WebhookFormat.PAGERDUTY, PAGER_KEY)
    values = {"address": f"{there.url}/other", "format": "standard"}
    with hooks.database.writing() as connection:
        connection.execute(tables.webhooks.update().values({changed: values[changed]}))
    encrypt(hooks)
    told = send(hooks, "pager")
    assert (told.state, there.got) == ("waiting", [])
    assert "its address or format was changed in the database" in told.said
    assert hooks.list_webhooks()[0].address == webhook_cipher.CHANGED
    environ = {"DEADLETTERS_DATABASE_URL": database_url, "DEADLETTERS_SECRET_KEY": key}
    texts = [each.text for each in check_desk_database(environ)]
    assert any("pager: its address or format was changed in the database" in text for text in texts)


def test_a_secret_that_was_encrypted_without_its_address_is_sent_and_encrypted_anew_with_it(new_hooks, there, key):
    hooks = new_hooks(key)
    add(hooks, there, "pager", WebhookFormat.PAGERDUTY, PAGER_KEY)
    unbound = webhook_cipher.PREFIX + Fernet(key).encrypt(PAGER_KEY.encode()).decode()
    with hooks.database.writing() as connection:
        connection.execute(tables.webhooks.update().values(secret=unbound))
    assert send(hooks, "pager").state == "sent"
    encrypt(hooks)
    assert send(hooks, "pager").state == "sent"
    assert [got.body["routing_key"] for got in there.got] == [PAGER_KEY, PAGER_KEY]
    with hooks.database.writing() as connection:
        assert connection.execute(select(tables.webhooks.c.secret)).scalar_one() != unbound
        connection.execute(tables.webhooks.update().values(address=f"{there.url}/other"))
    assert send(hooks, "pager").state == "waiting"
