"""Whether the ledger may have lost something."""

import pytest

from bridge.ledger.epoch import State

BEFORE = State("epoch", 100, "run", "history", 2)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (BEFORE, None),
        (BEFORE._replace(writes=150), None),
        (BEFORE._replace(history="other"), "was a replica"),
        (BEFORE._replace(lost=3), "connection"),
        (State("other", 150, "run"), "wiped"),
        (State("other", 1, "other"), "wiped"),
        (State("epoch", 99, "run"), "went back"),
        (State("epoch", 99, "other"), "went back"),
        (State("epoch", 150, "other"), "started again"),
    ],
)
def test_a_doubt_is_named(now: State, said: str | None) -> None:
    doubt = now.doubt(BEFORE)
    assert (doubt is None) if said is None else (said in str(doubt))
