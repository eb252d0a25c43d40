"""The scope of a halt that is smaller than a topic: one handler of the topic, or one key of that handler (pure).

The halt of a whole topic has keys of its own (bridge.formats.group_decision): a bridge of an older version, which knows
only those, ignores these.
"""

import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from bridge.formats.group_decision import GroupDecision
from bridge.formats.text_forms import write_octets

_PREFIX: Final = "halt-handler:"


class HaltScope(NamedTuple):
    """A handler of a topic, or one key of it.

    Attributes:
        topic: the source topic.
        handler: its name when it was halted.
        key: the record key as text; `None`: all messages of the handler. Bytes that are no UTF-8 are surrogates, as in
            the arguments of a command.
    """

    topic: str
    handler: str
    key: str | None = None

    @property
    def key_bytes(self) -> bytes | None:
        """Return the record key."""
        return None if self.key is None else self.key.encode("utf-8", "surrogateescape")

    @property
    def decision_key(self) -> str:
        """Return the key of decisions on this halt."""
        return f"{_PREFIX}{self.encoded}"

    @property
    def encoded(self) -> str:
        """Return the scope as printable ASCII without blanks; `read_encoded_scope` reads it."""
        parts = [_encode(self.topic), _encode(self.handler)]
        return ":".join(parts if self.key is None else [*parts, _encode(self.key)])

    @property
    def arguments(self) -> str:
        """Return the arguments with which `bridge halt` and `bridge resume` name the scope."""
        words = [
            self.topic,
            "--handler",
            self.handler,
            *(() if self.written_key is None else ("--key", self.written_key)),
        ]
        return shlex.join(words)

    @property
    def written_key(self) -> str | None:
        """Return the key as the option `--key` takes it, which is printable; `None` if it has none."""
        return None if self.key_bytes is None else write_octets(self.key_bytes)

    def under_current_name(self, names: Mapping[str, str]) -> "HaltScope":
        """Return the scope with the handler's current name: the halt of a handler that was renamed goes on.

        Parameters:
            names: by former name of a handler its current one.
        """
        return self._replace(handler=names.get(self.handler, self.handler))

    @property
    def data(self) -> dict[str, str | None]:
        """Return the scope as JSON."""
        return {"topic": self.topic, "handler": self.handler, "key": self.written_key}

    @property
    def words(self) -> str:
        """Return words such as `handler 'charge' of topic 'orders', key '4711',`."""
        key = "" if self.key is None else f", key {self.written_key!r},"
        return f"handler {self.handler!r} of topic {self.topic!r}{key}"


#: The halted handlers and keys with their decisions.
SmallHalts = Mapping[HaltScope, GroupDecision]


def read_encoded_scope(text: str) -> HaltScope | None:
    """Return the scope in a text; `None` if it is none."""
    if text.count(":") not in (1, 2):
        return None
    topic, handler, *keys = map(unquote_to_bytes, text.split(":"))
    try:
        # Anyone with access to the control topic or to Redis may have written them.
        names = topic.decode(), handler.decode()
    except UnicodeDecodeError:
        return None
    return HaltScope(*names, *(key.decode("utf-8", "surrogateescape") for key in keys)) if all(names) else None


def halted_scope(decision_key: str) -> HaltScope | None:
    """Return the handler or key whose halt a decision is about; `None` for other decisions."""
    return read_encoded_scope(decision_key.removeprefix(_PREFIX)) if decision_key.startswith(_PREFIX) else None


def find_small_halts(known: Mapping[str, GroupDecision]) -> dict[HaltScope, GroupDecision]:
    """Return the decisions that halt a handler or a key, sorted by topic, handler and key."""
    found = {
        scope: each
        for decision_key, each in known.items()
        if each.data is not None and (scope := halted_scope(decision_key)) is not None
    }
    return dict(sorted(found.items(), key=lambda item: (item[0].topic, item[0].handler, item[0].key or "")))


def _encode(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="")
