"""The layout of messages in Redis: the names of the transport's keys, and the form of what is stored there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import dumps, loads

#: Headers that count the owners which died with a message: after they had begun with it, and before.
RESTORED = "restored"
PREFETCHED = "prefetched"


@dataclass(frozen=True, slots=True)
class TransportKeys:
    """The names of the transport's own keys, ``prefix`` being kombu's ``global_keyprefix``."""

    prefix: str = ""

    @property
    def owners(self) -> str:
        """The hash of owners and their heartbeat counts."""
        return f"{self.prefix}_taken"

    @property
    def begun(self) -> str:
        """The hash of the messages with which each owner's tasks have begun, as far as reported."""
        return f"{self.prefix}_taken_begun"

    def swept(self, owner: str) -> str:
        """The key that exists for a day after an owner's messages were redelivered to others."""
        return f"{self.owners}_swept.{owner}"

    def taken(self, owner: str) -> str:
        """The hash of the messages that ``owner`` holds."""
        return f"{self.prefix}_taken.{owner}"

    @property
    def waiting_queues(self) -> str:
        """The set of queues that have waiting messages."""
        return f"{self.prefix}_waiting"

    def waiting(self, queue: str) -> str:
        """The sorted set of the messages of ``queue`` that are not due."""
        return f"{self.prefix}_waiting.{queue}"

    @property
    def idle_queues(self) -> str:
        """The set of queues with idle owners: their key of those, and their lists."""
        return f"{self.prefix}_idle"

    def idle(self, queue: str) -> str:
        """The sorted set of the owners that wait for messages of ``queue``."""
        return f"{self.prefix}_idle.{queue}"

    @property
    def notifier(self) -> str:
        """The lease of the process that rings for idle owners."""
        return f"{self.prefix}_lookout"

    def bell(self, owner: str) -> str:
        """The channel on which an idle ``owner`` is rung for."""
        return f"{self.prefix}_bell.{owner}"

    @property
    def gates(self) -> str:
        """The hash of shut gates and how many messages may still pass each."""
        return f"{self.prefix}_gates"

    @property
    def gates_why(self) -> str:
        """The hash of shut gates and their reasons."""
        return f"{self.prefix}_gates.why"

    @property
    def aside(self) -> str:
        """The set of lists of messages set aside: gate, NUL, the list that they came from."""
        return f"{self.prefix}_aside"

    def aside_of(self, member: str) -> str:
        """The list that a member of that set names, the last to arrive in front."""
        return f"{self.prefix}_aside.{member}"

    @property
    def undecodable(self) -> str:
        """The list of queue entries that were no kombu messages, unchanged."""
        return f"{self.prefix}_undecodable"


def store_message(key: str, raw: bytes) -> bytes:
    """Return the form in which a taken or waiting message of the list ``key`` is stored."""
    return key.encode() + b"\0" + raw


def decode_text(value: str | bytes) -> str:
    """Return an answer of Redis as text; bytes that are no UTF-8 are foreign, but must be named to be moved."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def is_our_text(value: str | bytes) -> bool:
    """Return whether this transport can have written a value."""
    return not any("\ud800" <= character <= "\udfff" for character in decode_text(value))


def mark_redelivered(raw: bytes, counted: str | None = None) -> bytes:
    """Return a message marked as redelivered, the way kombu marks it.

    Parameters:
        raw: the message as it lay in its list.
        counted: the header in which it is counted, because its owner died: `RESTORED` or `PREFETCHED`.

    Anything that is not a kombu message is returned unchanged.
    """
    try:
        message = decode_message(raw)
        message["headers"]["redelivered"] = True
        message["properties"]["delivery_info"]["redelivered"] = True
        if counted is not None:
            count = message["headers"].get(counted)
            message["headers"][counted] = (count if isinstance(count, int) else 0) + 1
        return str(dumps(message)).encode()
    except Exception:  # whatever is wrong with it, it must not be lost here
        return raw


def add_headers(raw: bytes, headers: Mapping[str, object]) -> bytes:
    """Return a message with further headers; return anything that is not a kombu message as it is."""
    try:
        message = decode_message(raw)
        message["headers"].update(headers)
        return str(dumps(message)).encode()
    except Exception:  # whatever is wrong with it, it must not be lost here
        return raw


def decode_message(raw: bytes) -> Any:
    """Return what ``raw`` encodes; kombu's slower decoder only where its type markers occur."""
    return loads(raw) if b'"__type__"' in raw else json.loads(raw)


def read_eta(message: dict[str, Any]) -> float | None:
    """Return when a Celery message is due, in seconds since the epoch; None if it is, or if its eta is no
    time.

    An eta without an offset is UTC, as Celery has it (celery/worker/request.py ``maybe_make_aware``).
    """
    eta = message["headers"].get("eta")
    if not isinstance(eta, str):
        return None
    try:
        when = datetime.fromisoformat(eta)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
