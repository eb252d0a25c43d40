"""The time of the first observation of something, as noted by the first bridge that saw it.

The note outlives that bridge, and only people read it.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.ledger_client import Ledger

#: Seconds that a note is kept after its last update.
KEPT_FOR: Final = 7 * 86_400


def note_first_observation(ledger: Ledger, what: str, seen: Mapping[str, float]) -> dict[str, float]:
    """Return when any bridge first saw each of these (Unix time).

    Parameters:
        what: the kind of observation.
        seen: when this bridge first saw each, by name.

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
    """Return the time of a note; the default if another program overwrote it."""
    try:
        at = float(raw or b"")
    except ValueError:
        return default
    return at if isfinite(at) and at > 0 else default
