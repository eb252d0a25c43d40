"""What was decided for the ledger's group, mirrored in Redis: where workers and commands read it.

Kafka's control topic has the decisions; a Redis that was wiped has none until a bridge puts them back. What Kafka could
not take lies here alone, until a bridge has published it. Nothing here is keyed by the Kafka cluster: it can be told
while Kafka is away.
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.pages import key
from bridge.ledger.script import CONTROL
from bridge.records.control import Decision, Standing, in_force, read
from bridge.records.untrusted_json import LARGEST, name_skipped

logger = logging.getLogger(__name__)

_IS: Final = "is "
_WANTS: Final = "wants "


class Mirrored(NamedTuple):
    """What Redis knows.

    Attributes:
        version: another one after each change; empty where nothing was noted: Redis is new, or was wiped.
        published: by key, what Kafka has.
        unpublished: by key, what it does not have yet.
        whole: whether a bridge has seen, since Redis was new or wiped, that nothing is missing that Kafka has.
    """

    version: str
    published: Mapping[str, Standing]
    unpublished: Mapping[str, Decision]
    whole: bool = False

    def in_force(self) -> dict[str, Decision]:
        """By key, what stands: the last decision, also one that took back what stood."""
        keys = self.published.keys() | self.unpublished.keys()
        found = {name: in_force(self.published.get(name), self.unpublished.get(name)) for name in keys}
        return {name: each for name, each in found.items() if each is not None}


NOTHING: Final = Mirrored("", {}, {})


class Mirror:
    """The decisions of the ledger's group. Each method raises LedgerUnavailable when Redis does not do as asked."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._key = key("control", ledger.group)

    def version(self) -> str:
        """Return the version of what is known: one small read."""
        with self._ledger.asking("read whether anything was decided") as pipe:
            pipe.hget(self._key, "version")
            (found,) = pipe.execute()
        return _text(found)

    def read(self) -> Mirrored:
        """Return all that is known."""
        with self._ledger.asking("read what was decided") as pipe:
            pipe.hgetall(self._key)
            (found,) = pipe.execute()
        return _read({_text(name): _text(value) for name, value in found.items()})

    def note(self, decision: Decision, offset: int) -> None:
        """Note what Kafka has, unless something newer is known; what it counts over is not to be published any more."""
        self._do("is", decision.key, offset, decision.change.id, decision.to_value())

    def want(self, decision: Decision) -> None:
        """Note what Kafka could not take: it stands, and a bridge publishes it."""
        self._do("wants", decision.key, decision.change.id, decision.to_value())

    def anew(self) -> None:
        """The control topic was made again, or lost its end: all that is known stands, and is to be published again."""
        self._do("anew")

    def whole(self, version: str) -> None:
        """Note that nothing is missing that Kafka has, where this is the version still."""
        self._do("whole", version)

    def _do(self, *args: str | int) -> None:
        self._ledger.run("note what was decided", CONTROL, [self._key], [secrets.token_hex(8), *args])


def _read(fields: Mapping[str, str]) -> Mirrored:
    """Return what the fields say; one that holds no decision is left out, and logged once."""
    published: dict[str, Standing] = {}
    unpublished: dict[str, Decision] = {}
    for name, value in fields.items():
        if name.startswith(_IS):
            offset, _, rest = value.partition(" ")
            decision = _decision(name.removeprefix(_IS), rest)
            if decision is not None and _is_offset(offset):
                published[decision.key] = Standing(decision, int(offset))
                continue
        elif name.startswith(_WANTS):
            decision = _decision(name.removeprefix(_WANTS), value)
            if decision is not None:
                unpublished[decision.key] = decision
                continue
        else:
            continue
        name_skipped(logger, f"field {name!r} of the decisions in Redis", "it holds no decision of this version")
    return Mirrored(fields.get("version", ""), published, unpublished, "whole" in fields)


def _is_offset(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < len(str(LARGEST))


def _decision(name: str, value: str) -> Decision | None:
    return read(name, value.partition(" ")[2])


def _text(found: Any) -> str:
    return found.decode(errors="surrogateescape") if found else ""
