"""The time since which something has been so, as the first bridge noted that saw it.

It outlives that bridge, and is for people only.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.ledger_client import Ledger

#: Seconds after the last look for which what was seen first is kept.
KEPT_FOR: Final = 7 * 86_400


def note_first_observation(ledger: Ledger, what: str, seen: Mapping[str, float]) -> dict[str, float]:
    """Return when each of these was seen first by anybody (Unix time).

    Parameters:
        what: the kind of thing.
        seen: by name, when this bridge saw it first.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if not seen:
        return {}
    where = ledger_key(ledger.cluster, ledger.group, f"first seen {what}")
    with ledger.asking("read since when something has been so") as pipe:
        for name, at in seen.items():
            pipe.hsetnx(where, name, repr(at))
        pipe.expire(where, KEPT_FOR)
        pipe.hmget(where, list(seen))
        *_, noted = pipe.execute()
    return {name: min(at, _moment(raw, at)) for (name, at), raw in zip(seen.items(), noted, strict=True)}


def _moment(raw: bytes | None, default: float) -> float:
    """The time that was noted; the default if that is none: another program has written it."""
    try:
        at = float(raw or b"")
    except ValueError:
        return default
    return at if isfinite(at) and at > 0 else default
