"""How webhooks are written and signed, for each receiver; and when what was not taken is sent again."""

import json
from datetime import datetime

import pytest

from bridge.deadletters.alarms import alarm_event
from bridge.deadletters.alarms.alarm_event import Alarm, AlarmKind
from bridge.deadletters.alarms.webhook_format import (
    EventSender,
    WebhookFormat,
    write_body,
    write_headers,
)
from bridge.deadletters.alarms.webhook_sender import GIVE_UP_AFTER, RETRY_AFTER, decide_next_try
from bridge.deadletters.alarms.webhook_signature import make_secret, sign_message

AT = 1_700_000_000_000
KEY = "0123456789abcdef0123456789abcdef"
SENDER = EventSender("shop", "ops-1", "https://console.example.com/")
HALT = {"bridge_group": "shop", "topic": "orders", "why": "wrong <prices> & co.", "by": "ann", "since": "…"}
GROUP = {"group": 7, "handler": "charge", "error_class": "ValueError", "where": "a.py:pay", "open": 3, "more": 0}

BEGUN = alarm_event.begin_event(Alarm(AlarmKind.HALT, "orders", AT, HALT, "shop"))
ENDED = alarm_event.end_event(Alarm(AlarmKind.HALT, "orders", AT, HALT, "shop"), AT + 60_000)
NEW = alarm_event.begin_event(Alarm(AlarmKind.NEW, "7", AT, GROUP))


def written(format_, event, sender=SENDER):
    return json.loads(write_body(format_, event, sender, KEY))


def test_a_signature_is_that_of_the_specification():
    """The vector with which the libraries of Standard Webhooks are tested."""
    secret, message = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    made = sign_message(message, 1_614_265_330, b'{"test": 2432232314}', secret)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_is_its_own_and_long_enough():
    first, second = make_secret(), make_secret()
    assert first != second
    assert first.startswith("whsec_")
    assert len(first) == len("whsec_") + 44


def test_the_standard_form_has_type_time_data_a_sentence_and_a_link():
    told = written(WebhookFormat.STANDARD, BEGUN)
    assert told == {
        "type": "topic.halted",
        "timestamp": "2023-11-14T22:13:20.000+00:00",
        "text": "Topic orders is halted by ann: wrong <prices> & co.",
        "link": "https://console.example.com/",
        "alarm": "halt:shop:orders",
        "data": HALT,
    }
    assert written(WebhookFormat.STANDARD, NEW)["link"] == "https://console.example.com/groups/7"
    assert written(WebhookFormat.STANDARD, NEW, EventSender("shop", "ops-1"))["link"] is None


def test_an_end_has_the_key_of_its_alarm_and_says_how_long_it_lasted():
    told = written(WebhookFormat.STANDARD, ENDED)
    assert (told["type"], told["alarm"]) == ("topic.resumed", "halt:shop:orders")
    assert told["text"] == "Topic orders is resumed, 1 min after it began."
    assert told["data"]["ended"] == "2023-11-14T22:14:20.000+00:00"


def test_the_standard_form_alone_is_signed():
    sent = write_body(WebhookFormat.STANDARD, BEGUN, SENDER, make_secret())
    secret = make_secret()
    found = write_headers(WebhookFormat.STANDARD, "msg_1", 5, sent, secret)
    assert found["webhook-id"] == "msg_1"
    assert found["webhook-timestamp"] == "5"
    assert found["webhook-signature"] == sign_message("msg_1", 5, sent, secret)
    assert set(write_headers(WebhookFormat.PAGERDUTY, "msg_1", 5, sent, KEY)) == {"content-type", "user-agent"}


def test_slack_shows_the_sentence_and_takes_nothing_of_it_for_markup():
    told = written(WebhookFormat.SLACK, BEGUN)
    assert told == {
        "text": "Topic orders is halted by ann: wrong &lt;prices&gt; &amp; co. <https://console.example.com/|Open>",
        "unfurl_links": False,
    }
    assert written(WebhookFormat.SLACK, NEW, EventSender("shop", "ops-1"))["text"].endswith("3 open.")


def test_pagerduty_opens_an_incident_and_resolves_the_same():
    """Its fields: developer.pagerduty.com, Events API v2, "Send an Alert Event"."""
    opened, resolved = written(WebhookFormat.PAGERDUTY, BEGUN), written(WebhookFormat.PAGERDUTY, ENDED)
    assert resolved == {"routing_key": KEY, "dedup_key": "ops-1:halt:shop:orders", "event_action": "resolve"}
    payload = opened.pop("payload")
    assert opened == {
        **resolved,
        "event_action": "trigger",
        "client": "celery-kafka-bridge",
        "client_url": "https://console.example.com/",
        "links": [{"href": "https://console.example.com/", "text": "Console"}],
    }
    assert payload == {
        "summary": BEGUN.text,
        "source": "shop",
        "severity": "critical",
        "timestamp": "2023-11-14T22:13:20.000+00:00",
        "class": "topic.halted",
        "custom_details": HALT,
    }
    datetime.fromisoformat(payload["timestamp"])


@pytest.mark.parametrize("about", AlarmKind)
def test_pagerduty_takes_what_is_told_of_anything(about):
    data = {**HALT, **GROUP, "dependency": "bank", "handlers": ["charge"], "failures": 20, "usual": 1.0, "webhook": "a"}
    data |= {"plan": 3, "what": "discard", "deliveries": 5}
    told = written(
        WebhookFormat.PAGERDUTY, alarm_event.begin_event(Alarm(about, "x" * 300, AT, {**data, "why": "y" * 5_000}))
    )
    assert told["payload"]["severity"] in ("critical", "error", "warning", "info")
    assert len(told["payload"]["summary"]) <= 1024
    assert len(told["dedup_key"]) <= 255


def test_what_others_have_written_is_cut_and_neither_colours_nor_breaks_a_line():
    decision = alarm_event.describe_halt("shop", "orders", _decision("\x1b[31m\n" + "x" * 10_000))
    text = alarm_event.begin_event(decision).text
    assert len(text) < 500
    assert text.isprintable()


def _decision(why):
    from bridge.formats.group_decision import DecisionEntry, GroupDecision

    return GroupDecision("halt:orders", DecisionEntry("1", {"since": 5}, "ann", 5.0, why))


def test_tries_get_rarer_until_it_is_given_up_after_a_day():
    now, tries = AT, 0
    pauses = []
    while True:
        tries += 1
        at = decide_next_try(tries, AT, now, None, lambda: 0.0)
        if at is None:
            break
        pauses.append(at - now)
        now = at
    assert pauses[:6] == [5_000, 15_000, 45_000, 135_000, 405_000, 1_215_000]
    assert max(pauses) == RETRY_AFTER.most
    assert GIVE_UP_AFTER - RETRY_AFTER.most < now - AT <= GIVE_UP_AFTER
    assert 20 < tries < 40


def test_chance_makes_a_pause_shorter_and_what_a_receiver_asks_for_longer_but_for_no_more_than_an_hour():
    assert decide_next_try(1, AT, AT, None, lambda: 1.0) == AT + int(RETRY_AFTER.first * 0.7)
    assert decide_next_try(1, AT, AT, 60, lambda: 0.0) == AT + 60_000
    assert decide_next_try(1, AT, AT, 10**9, lambda: 0.0) == AT + RETRY_AFTER.most
    assert decide_next_try(10**6, AT, AT, None, lambda: 0.0) == AT + RETRY_AFTER.most
