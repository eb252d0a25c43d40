"""What is promised of webhooks: each event is written once, and sent until its receiver has it; on both databases."""

import logging
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import insert, select, update

from bridge.deadletters.alarms import alarm_watch, dead_letter_problems, webhook_address, webhook_sender
from bridge.deadletters.alarms.alarm_event import ALL, Alarm, AlarmKind
from bridge.deadletters.alarms.webhook_format import WebhookFormat
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.alarms.webhook_signature import sign_message
from bridge.deadletters.db import audit_rows, kind_rows, plan_rows, sql, webhook_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db import webhook_rows as stored
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.table_definitions import cause_fixes, groups
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanKind, PlanOptions, PlanState
from bridge.errors import DeskUnavailable, WebhookRefused
from bridge.handler_routes import Routes
from bridge.settings.address_values import read_networks
from lossless.backoff import Backoff
from tests.desk import rows
from tests.desk.webhook_sender import STEPS, settings
from tests.processes import ROOT, eventually
from tests.servers.receiver import Receiver, receiver

HOUR = 3_600_000


@pytest.fixture
def there(tmp_path):
    """A receiver that listens."""
    with receiver(tmp_path) as made:
        yield made


@pytest.fixture
def hooks(database, database_url):
    """The desk's webhooks."""
    yield WebhookService(settings(database_url), database)
    # A thread that was told to stop may have its answer still to note.
    eventually(lambda: not any(each.name.startswith("webhook ") for each in threading.enumerate()))


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What was not taken is tried again at once."""
    monkeypatch.setattr(webhook_sender, "RETRY_AFTER", Backoff(first=1, most=100, factor=3))


def add(hooks, to, name="ops", about=(), format_=WebhookFormat.STANDARD, key=""):
    return hooks.add(name, format_, about, to if isinstance(to, str) else to.url, key, "ann").secret


def send(hooks):
    webhook_sender.send_due_events(hooks.settings, hooks.database, threading.Event())


def sent(hooks):
    """What each webhook was told, oldest first, and how it stands."""
    return {each.name: [(d.type, d.state) for d in reversed(each.latest)] for each in hooks.list_webhooks(100)}


def new_groups(database, *places, at=1_000):
    with database.writing() as connection:
        return [rows.letter(connection, rows.kind(connection, place=place), at + n) for n, place in enumerate(places)]


@contextmanager
def standing_alarms(monkeypatch, *found, unsure=()):
    """These alarms of topics stand."""
    with monkeypatch.context() as patched:
        patched.setattr(alarm_watch, "find_topic_alarms", lambda *_: (list(found), set(unsure)))
        yield


def halt(topic="orders", whose="bridge", at=5_000):
    data = {"bridge_group": whose, "topic": topic, "why": "it harms", "by": "ann", "since": "…"}
    return Alarm(AlarmKind.HALT, topic, at, data, whose)


def notice(hooks, *clock):
    alarm_watch.notice_topics(hooks.settings, Routes({}), hooks.database, *clock)


# Set up


def test_the_secret_is_given_once_and_stands_nowhere_else(hooks, there, caplog):
    with caplog.at_level(logging.DEBUG):
        secret = add(hooks, there)
        hooks.test("ops", "ann")
        there.stop()
        send_once(hooks)
    (shown,) = hooks.list_webhooks()
    with hooks.database.reading() as connection:
        kept, said = stored.list_webhooks(connection), audit_rows.read_history(connection)
    seen = " ".join([str(shown), repr(shown), str(shown.to_data()), repr(kept), repr(said), caplog.text])
    assert secret.startswith("whsec_")
    assert secret not in seen
    assert "s3cret" not in seen
    assert shown.address == f"http://127.0.0.1:{there.port}/…"
    assert [each.what for each in said] == ["webhook"]


def send_once(hooks):
    """Try each that is due once."""
    with hooks.database.reading() as connection:
        ids = [each.id for each in stored.list_webhooks(connection)]
    for id_ in ids:
        one = webhook_sender.WebhookSender(
            hooks.database, webhook_sender.SenderSettings.from_settings(hooks.settings), id_, threading.Event(), []
        )
        with hooks.database.writing() as connection:
            assert stored.lease_webhook(connection, id_, one._who)
        taken = one._take()
        assert taken is not None
        one._note(*taken, one._post(*taken))
        with hooks.database.writing() as connection:
            stored.release_webhook(connection, id_, one._who)


def test_what_cannot_be_is_refused_and_neither_address_nor_key_is_repeated(hooks, there):
    add(hooks, there)
    for given, why in (
        ({"name": "ops"}, "already"),
        ({"name": "a b"}, "letters a to z"),
        ({"name": "x", "to": "https://10.0.0.1/s3cret"}, "not public"),
        ({"name": "x", "to": "", "format_": WebhookFormat.PAGERDUTY, "key": "s3cret"}, "32 letters"),
    ):
        with pytest.raises(WebhookRefused, match=why) as refused:
            add(hooks, **{"to": there, **given})
        assert "s3cret" not in str(refused.value)
    for act in (hooks.remove, hooks.switch_off, hooks.switch_on, hooks.test):
        with pytest.raises(WebhookRefused, match="no webhook other"):
            act("other", "ann")


# Sent


def test_a_test_arrives_signed_by_the_secret(hooks, there):
    secret = add(hooks, there)
    message = hooks.test("ops", "ann")
    send(hooks)
    (got,) = there.got
    told = hooks.find_delivery(message)
    assert (told.state, told.said, told.tries) == ("sent", "HTTP 200", 1)
    assert got.id == message
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
    signed = sign_message(message, int(got.headers["webhook-timestamp"]), got.raw.encode(), secret)
    assert got.headers["webhook-signature"] == signed
    assert got.headers["content-type"] == "application/json"
    assert got.headers["host"] == f"127.0.0.1:{there.port}"
    assert (got.path, got.body["type"]) == ("/hooks/T0/s3cret", "webhook.test")


def test_what_is_not_taken_is_sent_again_by_the_same_id_until_it_is(hooks, there):
    add(hooks, there)
    there.answers(500)
    message = hooks.test("ops", "ann")
    with sending_beside(hooks):
        eventually(lambda: len(there.got) >= 3)
        assert hooks.find_delivery(message).said == "HTTP 500"
        there.answers(200)
        eventually(lambda: hooks.find_delivery(message).state == "sent")
    assert {got.id for got in there.got} == {message}
    assert len(there.got) == hooks.find_delivery(message).tries


@contextmanager
def sending_beside(hooks):
    """What is due is sent, as a recorder's duty does it."""
    stopping = threading.Event()

    def run():
        while not stopping.wait(0.05):
            webhook_sender.send_due_events(hooks.settings, hooks.database, stopping)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)
        assert not thread.is_alive()


def test_a_receiver_that_was_away_gets_all_of_it_the_end_after_the_beginning(hooks, there, monkeypatch):
    there.stop()
    add(hooks, there)
    with sending_beside(hooks):
        for _ in range(3):
            with standing_alarms(monkeypatch, halt("orders"), halt("mails")):
                notice(hooks)
            with standing_alarms(monkeypatch):
                notice(hooks)
        eventually(lambda: max(each.tries for each in hooks.list_webhooks(100)[0].latest) > 1)
        there.start()
        eventually(lambda: all(state == "sent" for _, state in sent(hooks)["ops"]))
    told = [(got.body["alarm"], got.body["type"]) for got in there.got]
    for topic in ("orders", "mails"):
        its = [type_ for alarm, type_ in told if alarm == f"halt:bridge:{topic}"]
        assert its == ["topic.halted", "topic.resumed"] * 3


def test_what_waits_for_its_beginning_is_not_sent_before_it(hooks, there, monkeypatch):
    add(hooks, there)
    with standing_alarms(monkeypatch, halt()):
        notice(hooks)
    with hooks.database.writing() as connection:
        connection.execute(update(tables.deliveries).values(next_at=2**52))
    with standing_alarms(monkeypatch):
        notice(hooks)
    hooks.test("ops", "ann")
    send(hooks)
    assert [got.body["type"] for got in there.got] == ["webhook.test"]


def test_it_is_given_up_after_a_day_and_said(hooks, there):
    there.answers(503)
    add(hooks, there)
    message = hooks.test("ops", "ann")
    with hooks.database.writing() as connection:
        connection.execute(update(tables.deliveries).values(made_at=int(time.time() * 1000) - 25 * HOUR))
    send(hooks)
    assert (hooks.find_delivery(message).state, hooks.find_delivery(message).said) == ("given up", "HTTP 503")
    (said,) = dead_letter_problems._read_failing_webhooks(hooks.database, time.time())
    assert said.startswith("The webhook ops did not accept 1 event; it was given up ")


def test_a_receiver_that_does_not_answer_and_a_recorder_that_does_not_send_are_said(hooks, there):
    add(hooks, there)
    hooks.test("ops", "ann")
    later = time.time() + 90
    assert [*dead_letter_problems._read_failing_webhooks(hooks.database, time.time())] == []
    (said,) = dead_letter_problems._read_failing_webhooks(hooks.database, later)
    assert "Nothing is sent to the webhook ops" in said
    assert "Start `bridge deadletters record`" in said
    with hooks.database.writing() as connection:
        connection.execute(update(tables.deliveries).values(tries=5))
    (said,) = dead_letter_problems._read_failing_webhooks(hooks.database, later)
    assert "The webhook ops refuses events or does not answer" in said


def test_one_that_wants_nothing_any_more_is_switched_off_and_said(hooks, there):
    there.answers(410)
    add(hooks, there)
    hooks.test("ops", "ann")
    hooks.test("ops", "bob")
    send(hooks)
    assert len(there.got) == 1
    assert [state for _, state in sent(hooks)["ops"]] == ["given up", "given up"]
    (said,) = dead_letter_problems._read_failing_webhooks(hooks.database, time.time())
    assert "The webhook ops was switched off" in said
    with pytest.raises(WebhookRefused, match="is off"):
        hooks.test("ops", "ann")
    hooks.switch_on("ops", "ann")
    there.answers(200)
    hooks.test("ops", "ann")
    send(hooks)
    assert sent(hooks)["ops"][-1] == ("webhook.test", "sent")


def test_a_redirect_is_not_followed(hooks, there):
    there.answers(307, location=f"http://127.0.0.1:{there.port}/elsewhere")
    add(hooks, there)
    hooks.test("ops", "ann")
    send_once(hooks)
    assert [got.path for got in there.got] == ["/hooks/T0/s3cret"]
    assert hooks.list_webhooks()[0].latest[0].said == "HTTP 307"


def test_who_answers_a_byte_at_a_time_is_given_up_in_time_and_holds_up_nobody_else(hooks, there, tmp_path, monkeypatch):
    monkeypatch.setattr(webhook_sender, "WITHIN", 2.0)
    there.answers(200, drip=0.5)
    (tmp_path / "quick").mkdir()
    with receiver(tmp_path / "quick") as quick:
        add(hooks, there, "slow")
        add(hooks, quick, "quick")
        for _ in range(3):
            hooks.test("slow", "ann")
            hooks.test("quick", "ann")
        stopping = threading.Event()
        run = threading.Thread(target=lambda: webhook_sender.send_due_events(hooks.settings, hooks.database, stopping))
        run.start()
        eventually(lambda: len(quick.got) == 3)
        assert sent(hooks)["slow"].count(("webhook.test", "sent")) == 0
        eventually(lambda: any("in time" in each.said for each in hooks.list_webhooks()[1].latest))
        stopping.set()
        run.join(10)
        assert not run.is_alive()


def test_of_more_than_are_sent_at_a_time_who_was_tried_longest_ago_is_next(hooks, there):
    names = [f"ops-{number}" for number in range(4)]
    for name in names:
        add(hooks, there, name)
        hooks.test(name, "ann")
    ids = webhook_sender.take_due_webhooks(hooks.database, 4, set())
    with hooks.database.writing() as connection:
        # The first two did not answer, the second later than the first; the others wait for the first time.
        for waited, tried_at, id_ in zip((0, 10, 30, 20), (80, 90, None, None), ids, strict=True):
            its = tables.deliveries.c.webhook_id == id_
            connection.execute(update(tables.deliveries).where(its).values(next_at=1_000 + waited, tried_at=tried_at))
    assert webhook_sender.take_due_webhooks(hooks.database, 4, set()) == [ids[3], ids[2], ids[0], ids[1]]
    assert webhook_sender.take_due_webhooks(hooks.database, 2, {ids[3]}) == [ids[2], ids[0]]


def halts(hooks, name, *topics):
    """One is to be told of these, each an alarm of its own; by which ids."""
    event = {"about": "halt", "type": "topic.halted", "at": 1, "text": "", "page": "", "data": "{}"}
    with hooks.database.writing() as connection:
        found, now = stored.hold_webhook(connection, name), sql.read_clock(connection)
        assert found is not None
        for topic in topics:
            webhook_rows.add_deliveries(connection, [found.id], {**event, "alarm": f"halt:bridge:{topic}"}, now)
        return [
            each.message for each in reversed(webhook_rows.read_latest_deliveries(connection, found.id, len(topics)))
        ]


def test_a_fresh_event_stands_before_the_retries_of_its_receiver_which_keep_their_order(hooks, there):
    add(hooks, there)
    tried = halts(hooks, "ops", "a", "b", "c")
    with hooks.database.writing() as connection:
        connection.execute(update(tables.deliveries).values(tries=1, tried_at=900, next_at=tables.deliveries.c.id))
    fresh = halts(hooks, "ops", "d", "e")
    send(hooks)
    assert [got.id for got in there.got] == [*fresh, *tried]


def test_receivers_that_never_answer_take_turns_and_hold_up_one_that_does_for_a_try_at_most(
    hooks, there, tmp_path, monkeypatch
):
    monkeypatch.setattr(webhook_sender, "WITHIN", 2.0)
    monkeypatch.setattr(webhook_sender, "RETRY_AFTER", Backoff(first=60_000, most=60_000))
    there.answers(200, wait=600)
    dead = [f"dead-{number}" for number in range(webhook_sender.AT_ONCE + 1)]
    for name in dead:
        add(hooks, there, name)
        halts(hooks, name, *map(str, range(20)))
    (tmp_path / "quick").mkdir()
    with sending_beside(hooks), receiver(tmp_path / "quick") as quick:
        eventually(lambda: len(there.got) >= webhook_sender.AT_ONCE, 30)
        add(hooks, quick, "quick")
        halts(hooks, "quick", "orders")
        eventually(lambda: quick.got, 15, "who answers is told, though the others have much to be told")
        eventually(lambda: all(any(each.tries for each in hook.latest) for hook in hooks.list_webhooks(100)), 15)
        assert any(not each.tries for hook in hooks.list_webhooks(100) for each in hook.latest)


def test_what_a_name_leads_to_is_looked_at_each_time_it_is_sent(hooks, there, database):
    add(hooks, there)
    message = hooks.test("ops", "ann")
    elsewhere = WebhookService(settings(hooks.settings.environment.DEADLETTERS_DATABASE_URL), database)
    elsewhere.settings.environment.__dict__["DEADLETTERS_WEBHOOK_NETWORKS"] = ""
    with database.writing() as connection:
        address = there.url.replace("http://127.0.0.1", "https://localhost")
        connection.execute(update(tables.webhooks).values(address=address))
    send_once(elsewhere)
    assert there.got == []
    assert "is not public" in hooks.find_delivery(message).said
    assert "s3cret" not in hooks.find_delivery(message).said


@pytest.mark.slow
def test_several_processes_send_each_once(hooks, there, database_url):
    for number in range(4):
        add(hooks, there, f"ops-{number}")
    wanted = {hooks.test(f"ops-{number % 4}", "ann") for number in range(40)}
    command = (sys.executable, "-m", "tests.desk.webhook_sender", database_url, "never")
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert sorted(got.id for got in there.got) == sorted(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_each_arrives_by_its_id_and_nothing_waits(hooks, there, database_url, step):
    add(hooks, there)
    wanted = {hooks.test("ops", "ann") for _ in range(3)}
    command = (sys.executable, "-m", "tests.desk.webhook_sender", database_url, step)
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == -9
    before = [got.id for got in there.got]
    assert len(before) == (0 if step in ("leased", "taken") else 1)
    assert sent(hooks)["ops"].count(("webhook.test", "sent")) == (1 if step == "committed" else 0)
    eventually(lambda: send(hooks) or all(state == "sent" for _, state in sent(hooks)["ops"]))
    ids = [got.id for got in there.got]
    assert set(ids) == wanted
    assert len(ids) == (4 if step in ("posted", "noted") else 3)


def test_what_was_sent_while_the_database_is_away_is_sent_again_by_the_same_id(hooks, there, monkeypatch):
    add(hooks, there)
    message = hooks.test("ops", "ann")

    def away(*_):
        raise DeskUnavailable("The database is away.")

    with monkeypatch.context() as patched:
        patched.setattr(stored, "WEBHOOK_LEASE_MS", 100)
        patched.setattr(webhook_rows, "end_delivery", away)
        with pytest.raises(DeskUnavailable):
            send(hooks)
    assert hooks.find_delivery(message).state == "waiting"
    eventually(lambda: send(hooks) or hooks.find_delivery(message).state == "sent")
    assert [got.id for got in there.got] == [message, message]


# Noticed


def test_a_halt_is_told_once_and_its_end_once_however_many_look(hooks, there, monkeypatch):
    add(hooks, there)
    for stands in ((halt(),), (halt(),), (), ()):
        with standing_alarms(monkeypatch, *stands):
            begin = threading.Barrier(4)

            def look(begin: threading.Barrier = begin) -> None:
                begin.wait(10)
                notice(hooks)

            threads = [threading.Thread(target=look) for _ in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join(30)
    assert [type_ for type_, _ in sent(hooks)["ops"]] == ["topic.halted", "topic.resumed"]


def test_what_was_seen_before_another_changed_it_or_too_long_ago_does_not_count(hooks, there, monkeypatch):
    add(hooks, there)
    with standing_alarms(monkeypatch, halt()):
        seconds = iter([0.0, alarm_watch.GOOD_FOR + 1])
        notice(hooks, lambda: next(seconds))
    assert sent(hooks) == {"ops": []}

    def meanwhile(*_):
        # It was resumed, and another recorder has told that, while this one was frozen with what it saw.
        with standing_alarms(monkeypatch):
            notice(hooks)
        return [halt("mails")], set()

    with standing_alarms(monkeypatch, halt()):
        notice(hooks)
    with monkeypatch.context() as patched:
        patched.setattr(alarm_watch, "find_topic_alarms", meanwhile)
        notice(hooks)
    assert [type_ for type_, _ in sent(hooks)["ops"]] == ["topic.halted", "topic.resumed"]


def test_another_groups_alarms_and_what_is_not_sure_do_not_end(hooks, there, monkeypatch):
    add(hooks, there)
    breaker = Alarm(AlarmKind.BREAKER, "bank", 1, {"dependency": "bank", "why": "no", "handlers": []}, "bridge")
    with hooks.database.writing() as connection:
        webhook_rows.begin_alarm(
            connection, "halt:other:orders", webhook_rows.AlarmRow("halt", "orders", 1, halt().data)
        )
    with standing_alarms(monkeypatch, breaker):
        notice(hooks)
    with standing_alarms(monkeypatch, unsure=[breaker.key]):
        notice(hooks)
    assert sent(hooks) == {"ops": [("breaker.opened", "waiting")]}
    with standing_alarms(monkeypatch):
        notice(hooks)
    assert [type_ for type_, _ in sent(hooks)["ops"]] == ["breaker.opened", "breaker.closed"]


def test_groups_that_are_new_since_the_first_webhook_are_told_once(hooks, there, database):
    new_groups(database, "old.py:f")
    add(hooks, there)
    alarm_watch.notice_new(database)
    assert sent(hooks) == {"ops": []}
    new_groups(database, "a.py:f", "b.py:f")
    alarm_watch.notice_new(database)
    alarm_watch.notice_new(database)
    (shown,) = hooks.list_webhooks()
    assert sorted(each.text.split(", ")[2] for each in shown.latest) == ["a.py:f; 1 open.", "b.py:f; 1 open."]


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_what_is_due_is_found_by_steps_that_grow_with_what_waits_and_not_with_its_square(database):
    taken: list[int] = []
    with database.writing() as connection:
        told = stored.Webhook(0, "chat", "https://example.com", WebhookFormat.STANDARD, ALL, "", 1, "ann", None, "")
        hook = stored.add_webhook(connection, told)
        for count in (500, 1_500):
            for number in range(count - 500 * len(taken)):
                event = {"about": "halt", "type": "topic.halted", "at": 1, "text": "", "page": "", "data": "{}"}
                webhook_rows.add_deliveries(connection, [hook], {**event, "alarm": f"{count} {number}"}, 1)
            steps: list[int] = []
            plain = connection.connection.driver_connection
            plain.set_progress_handler(lambda steps=steps: steps.append(1), 100)
            assert webhook_rows.find_due_webhooks(connection, 2) == [hook]
            assert webhook_rows.take_due_delivery(connection, hook, 2) is not None
            plain.set_progress_handler(None, 0)
            taken.append(len(steps))
    few, many = taken
    assert many < 5 * few


def test_of_many_new_groups_some_are_told_and_the_rest_counted(hooks, there, database):
    add(hooks, there)
    new_groups(database, *(f"a.py:f{number}" for number in range(12)))
    alarm_watch.notice_new(database)
    (shown,) = hooks.list_webhooks(100)
    assert len(shown.latest) == alarm_watch.NEW_AT_ONCE
    assert shown.latest[0].text.endswith("7 more groups are new.")
    alarm_watch.notice_new(database)
    assert len(hooks.list_webhooks(100)[0].latest) == alarm_watch.NEW_AT_ONCE


def test_growth_and_a_regression_are_told_and_that_they_are_over(hooks, there, database):
    add(hooks, there)
    now = int(time.time() * 1000)
    with database.writing() as connection:
        kind = rows.kind(connection)
        rows.letter(connection, kind, 1)
        kind_rows.add_failure_hours(connection, {(kind, now // HOUR): 20})
        connection.execute(update(groups).values(regressed_at=now))
    alarm_watch.notice_groups(database)
    alarm_watch.notice_groups(database)
    began = {"group.growing", "group.regressed"}
    assert {type_ for type_, _ in sent(hooks)["ops"]} == began
    assert len(sent(hooks)["ops"]) == 2
    with database.writing() as connection:
        kind_rows.add_failure_hours(connection, {(kind, now // HOUR): -20})
        connection.execute(update(groups).values(regressed_at=None))
    alarm_watch.notice_groups(database)
    assert {type_ for type_, _ in sent(hooks)["ops"]} == began | {"group.growth_over", "group.regression_over"}


def test_a_plan_that_awaits_a_second_person_is_told_without_its_reason_and_that_somebody_decided(
    hooks, there, database
):
    add(hooks, there)
    with database.writing() as connection:
        made = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "a secret", {}, PlanOptions())[0]
        plan_rows.note_plan_counts(connection, made, PlanCounts(letters=1_200))
        plan_rows.change_plan_state(connection, made, [PlanState.PLANNED], PlanState.AWAITING)
    alarm_watch.notice_awaiting_plans(database)
    alarm_watch.notice_awaiting_plans(database)
    (told,) = hooks.list_webhooks(100)[0].latest
    assert told.type == "plan.awaiting"
    assert told.text.startswith("Plan 1 of ann awaits a second person: replay of 1,200 deliveries.")
    send(hooks)
    eventually(lambda: there.got)
    assert "a secret" not in there.got[0].raw
    with database.writing() as connection:
        plan_rows.change_plan_state(connection, made, [PlanState.AWAITING], PlanState.APPLYING)
    alarm_watch.notice_awaiting_plans(database)
    assert [type_ for type_, _ in sent(hooks)["ops"]] == ["plan.awaiting", "plan.decided"]


def test_a_cause_that_failed_again_is_told_by_its_name(hooks, there, database):
    add(hooks, there)
    with database.writing() as connection:
        kind = rows.kind(connection, cause="aaa")
        rows.letter(connection, kind, 1)
        mark = {"group_id": rows.group_of(connection, kind), "cause": "aaa", "regressed_at": 1}
        connection.execute(insert(cause_fixes).values(mark))
    alarm_watch.notice_groups(database)
    (told,) = hooks.list_webhooks(100)[0].latest
    assert told.type == "group.regressed"
    assert "cause aaa of group 1" in told.text


def test_each_is_told_what_it_tells_of_and_one_that_is_off_nothing(hooks, there, monkeypatch):
    add(hooks, there, "all")
    add(hooks, there, "halts", (AlarmKind.HALT,))
    add(hooks, there, "breakers", (AlarmKind.BREAKER,))
    add(hooks, there, "off")
    hooks.switch_off("off", "ann")
    assert hooks.list_webhooks()[0].about == tuple(map(str, ALL))
    with standing_alarms(monkeypatch, halt()):
        notice(hooks)
    told = [("topic.halted", "waiting")]
    assert sent(hooks) == {"all": told, "halts": told, "breakers": [], "off": []}
    hooks.switch_off("halts", "ann")
    assert sent(hooks)["halts"] == [("topic.halted", "given up")]
    hooks.remove("all", "ann")
    assert "all" not in sent(hooks)


def test_without_a_webhook_no_server_is_asked(hooks, monkeypatch):
    def asked(*_):
        raise AssertionError("it was asked")

    monkeypatch.setattr(alarm_watch, "find_topic_alarms", asked)
    monkeypatch.setattr(alarm_watch, "find_group_alarms", asked)
    notice(hooks)
    alarm_watch.notice_groups(hooks.database)


def test_what_has_ended_is_forgotten_after_a_week_and_what_waits_is_not(hooks, there, database):
    add(hooks, there)
    hooks.test("ops", "ann")
    send(hooks)
    kept = hooks.test("ops", "ann")
    with database.writing() as connection:
        old = int(time.time() * 1000) - 8 * 24 * HOUR
        connection.execute(update(tables.deliveries).values(made_at=old))
        its = tables.deliveries.c.ended_at.is_not(None)
        connection.execute(update(tables.deliveries).where(its).values(ended_at=old))
    alarm_watch.notice_groups(database)
    with database.reading() as connection:
        assert connection.execute(select(tables.deliveries.c.message)).scalars().all() == [kept]


def test_slack_and_pagerduty_get_what_they_take(hooks, there):
    add(hooks, there, "slack", format_=WebhookFormat.SLACK)
    key = "0123456789abcdef0123456789abcdef"
    assert add(hooks, there, "pager", format_=WebhookFormat.PAGERDUTY, key=key) == ""
    hooks.test("slack", "ann")
    hooks.test("pager", "ann")
    there.answers(202)
    send(hooks)
    bodies = sorted((got.body for got in there.got), key=len)
    assert bodies[0]["text"] == "A test of the webhook slack, by ann: it arrives."
    assert bodies[1]["routing_key"] == key
    assert not any("webhook-signature" in got.headers for got in there.got)


def test_receivers_that_refuse_a_connection_or_speak_no_http_are_answers(tmp_path):
    closed = Receiver(tmp_path)
    allowed = read_networks("127.0.0.0/8")
    answer = webhook_sender.post_event(webhook_address.parse_target(closed.url, allowed), b"{}", {}, allowed)
    assert (answer.status, answer.why) == (None, "no answer of HTTP: Connection refused")
    with receiver(tmp_path) as plain:
        target = webhook_address.parse_target(plain.url.replace("http:", "https:"), allowed)
        assert webhook_sender.post_event(target, b"{}", {}, allowed).why.startswith("TLS: ")


def test_a_name_server_that_does_not_answer_takes_no_longer_than_a_receiver(monkeypatch):
    answers, gave_up = threading.Event(), threading.Event()

    def silent(*_, **__):
        answers.wait(30)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr(webhook_sender, "WITHIN", 0.2)
    found = []

    def post():
        found.append(webhook_sender.post_event(webhook_address.parse_target("https://example.com/", ()), b"{}", {}, ()))
        gave_up.set()

    threading.Thread(target=post, daemon=True).start()
    try:
        assert gave_up.wait(10)
        assert (found[0].status, found[0].why) == (None, "it did not answer in time")
    finally:
        answers.set()


def test_a_database_that_is_not_there_is_said_by_each_duty(tmp_path):
    gone = Database(f"sqlite:///{tmp_path}/missing/letters.db")
    with pytest.raises(DeskUnavailable):
        webhook_sender.send_due_events(settings("sqlite:///x"), gone, threading.Event())
    with pytest.raises(DeskUnavailable):
        alarm_watch.notice_new(gone)
