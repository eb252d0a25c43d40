"""The formats of an event: Standard Webhooks (signed in webhook_signature.py), Slack and PagerDuty (pure)."""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bridge.deadletters.alarms.alarm_event import AlarmEvent, AlarmKind
from bridge.deadletters.alarms.webhook_signature import sign_message
from bridge.deadletters.model.letter_view import format_moment

#: PagerDuty's address for events, in its service region of the United States.
PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
#: Most characters of a summary and of a key for PagerDuty.
LONGEST_SUMMARY: Final = 1024
LONGEST_KEY: Final = 255

_SEVERITY: Final[Mapping[AlarmKind, str]] = {
    AlarmKind.NEW: "warning",
    AlarmKind.REGRESSION: "error",
    AlarmKind.GROWTH: "error",
    AlarmKind.HALT: "critical",
    AlarmKind.BREAKER: "error",
    AlarmKind.APPROVAL: "warning",
    AlarmKind.TEST: "info",
}


class WebhookFormat(StrEnum):
    """A format of webhook events."""

    STANDARD = "standard"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


class EventSender(NamedTuple):
    """The sender of an event.

    Attributes:
        group: the consumer group of the process that sends.
        webhook: an id of the webhook that is unique across databases.
        console: the address of the console; empty: unknown.
    """

    group: str
    webhook: str
    console: str = ""

    def link(self, event: AlarmEvent) -> str | None:
        """Return the console's page about an event; `None` without a console."""
        return f"{self.console.rstrip('/')}{event.page}" if self.console else None


def write_body(format_: WebhookFormat, event: AlarmEvent, sender: EventSender, secret: str) -> bytes:
    """Return the body of the request.

    Parameters:
        secret: of the webhook: for PagerDuty the integration key in the body.
    """
    if format_ is WebhookFormat.STANDARD:
        return _to_bytes(_write_standard(event, sender))
    return _to_bytes(
        _write_slack(event, sender) if format_ is WebhookFormat.SLACK else _write_pagerduty(event, sender, secret)
    )


def write_headers(format_: WebhookFormat, message: str, at: int, sent: bytes, secret: str) -> dict[str, str]:
    """Return the headers of the request.

    Parameters:
        message: the id of the event, the same for each try.
        at: the time of this try, seconds since the epoch.
    """
    found = {"content-type": "application/json", "user-agent": "celery-kafka-bridge"}
    if format_ is not WebhookFormat.STANDARD:
        return found
    signed = {"webhook-signature": sign_message(message, at, sent, secret)}
    return {**found, "webhook-id": message, "webhook-timestamp": str(at), **signed}


def _write_standard(event: AlarmEvent, sender: EventSender) -> dict[str, Any]:
    told = {"type": event.type, "timestamp": format_moment(event.at), "text": event.text, "link": sender.link(event)}
    return {**told, "alarm": event.key, "data": dict(event.data)}


def _write_slack(event: AlarmEvent, sender: EventSender) -> dict[str, Any]:
    # These three characters are markup in Slack: `<!channel>` would notify everybody.
    text = event.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    link = sender.link(event)
    return {"text": f"{text} <{link}|Open>" if link else text, "unfurl_links": False}


def _write_pagerduty(event: AlarmEvent, sender: EventSender, key: str) -> dict[str, Any]:
    whose = {"routing_key": key, "dedup_key": _make_dedup_key(f"{sender.webhook}:{event.key}")}
    if event.is_end:
        return {**whose, "event_action": "resolve"}
    payload = {
        "summary": event.text[:LONGEST_SUMMARY],
        "source": sender.group,
        "severity": _SEVERITY[event.about],
        "timestamp": format_moment(event.at),
        "class": event.type,
        "custom_details": dict(event.data),
    }
    made = {**whose, "event_action": "trigger", "payload": payload, "client": "celery-kafka-bridge"}
    link = sender.link(event)
    return made if link is None else {**made, "client_url": link, "links": [{"href": link, "text": "Console"}]}


def _make_dedup_key(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()


def _to_bytes(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode()
