"""Whether the ledger may have lost something."""

import pytest

from bridge.ledger.ledger_epoch import LedgerState

BEFORE = LedgerState("epoch", 100, "run", "history", 2)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (BEFORE, None),
        (BEFORE._replace(writes=150), None),
        (BEFORE._replace(history="other"), "was a replica"),
        (BEFORE._replace(lost=3), "connection"),
        (LedgerState("other", 150, "run"), "wiped"),
        (LedgerState("other", 1, "other"), "wiped"),
        (LedgerState("epoch", 99, "run"), "lost writes"),
        (LedgerState("epoch", 99, "other"), "lost writes"),
        (LedgerState("epoch", 150, "other"), "restarted"),
    ],
)
def test_a_doubt_is_named(now: LedgerState, said: str | None) -> None:
    doubt = now.doubt(BEFORE)
    assert (doubt is None) if said is None else (said in str(doubt))
