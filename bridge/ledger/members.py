"""Which bridges of a group live, and how each is: what commands read when no bridge can be reached."""

import json
from collections.abc import Mapping
from typing import Any

from bridge.ledger.client import Ledger
from bridge.ledger.pages import key


class Members:
    """The living bridges of the ledger's group. Each method raises LedgerUnavailable when Redis is silent."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._everyone = key(ledger.cluster, ledger.group, "members")

    def announce(self, member: str, state: Mapping[str, Any], seconds: float) -> None:
        """Say that a bridge lives and how it is (JSON values), for `seconds` or until it says so again."""
        with self._ledger.asking("announce this bridge") as pipe:
            pipe.set(self._key(member), json.dumps(state), px=max(1, int(seconds * 1000)))
            pipe.sadd(self._everyone, member)
            pipe.execute()

    def leave(self, member: str) -> None:
        """Take back what `member` announced."""
        with self._ledger.asking("take this bridge off the list") as pipe:
            pipe.delete(self._key(member))
            pipe.srem(self._everyone, member)
            pipe.execute()

    def living(self) -> dict[str, Mapping[str, Any]]:
        """Return what each living member last announced; those that fell silent are taken off the list."""
        with self._ledger.asking("list the bridges") as pipe:
            pipe.smembers(self._everyone)
            (everyone,) = pipe.execute()
            names = sorted(name.decode() for name in everyone)
            for name in names:
                pipe.get(self._key(name))
            states = dict(zip(names, pipe.execute(), strict=True))
            gone = [name for name, state in states.items() if state is None]
            if gone:
                pipe.srem(self._everyone, *gone)
                pipe.execute()
        return {name: json.loads(state) for name, state in states.items() if state is not None}

    def _key(self, member: str) -> str:
        return key(self._ledger.cluster, self._ledger.group, "member", member)
