"""Whether a recorder lives where one did: what a group that has none, or records by `--once`, is not asked."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.settings import Settings
from bridge.upkeep.facts import when
from bridge.upkeep.problem import Problem

#: Seconds for Redis's answer.
ANSWER_WITHIN: Final = 2.0


def missing(settings: Settings, now: float) -> Iterator[Problem]:
    """That none lives, and since when; nothing where none was here in the last month, or Redis does not say.

    Parameters:
        now: Unix time.
    """
    seen = last_seen(settings)
    if seen is None:
        return
    yield Problem(
        f"No recorder of dead letters runs, {when(seen, now)}: they stay in Kafka, webhooks tell nothing, and no plan "
        "is gone on with. Start `bridge deadletters record`, or see its log.",
        "recorder",
        "No recorder of dead letters runs",
        since=seen,
        do="start `bridge deadletters record`",
    )


def last_seen(settings: Settings) -> float | None:
    """When a recorder said last that it lives (Unix time), where none does now."""
    ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        return None
    try:
        with closing(ledger):
            members = Members(ledger, "recorders")
            return None if members.living() else members.last_seen().get(f"group {settings.group}")
    except LedgerUnavailable:
        # The status says so.
        return None
