"""The last errors of handlers in Redis lose what a person's erasure takes out of them, and keep all else."""

import time
from contextlib import closing

from bridge.ledger import Ledger
from bridge.ledger.attempt_statistics import (
    RecentAttempts,
    note_outcomes,
    note_unpublished,
    read_outcomes,
    read_unpublished,
    redact_errors,
)

CHARGE, NOTIFY = ("orders", "shop.charge"), ("orders", "shop.notify")


def test_errors_that_quote_a_person_are_redacted_and_the_others_stay(redis_url: str) -> None:
    now = time.time()
    with closing(Ledger(redis_url, "cluster", "bridge")) as ledger:
        for whose, error in ((CHARGE, "no card of Ann"), (NOTIFY, "no line")):
            attempts = RecentAttempts()
            attempts.has_failed(now, error=error)
            note_outcomes(ledger, {whose: attempts}, now)
        note_unpublished(ledger, {"shop.charge": {"orders-0-1": "Ann is too large"}}, {})

        def redact(error: str) -> str:
            return error.replace("Ann", "[erased]")

        nobody = ("orders", "shop.nobody")
        assert redact_errors(ledger, [CHARGE, NOTIFY, CHARGE, nobody], redact) == 2
        found = read_outcomes(ledger, [CHARGE, NOTIFY, nobody], now)
        assert [found[whose].error for whose in (CHARGE, NOTIFY, nobody)] == ["no card of [erased]", "no line", ""]
        assert found[CHARGE].failed == 1
        assert read_unpublished(ledger, ["shop.charge"], now)["shop.charge"].error == "[erased] is too large"
        assert redact_errors(ledger, [CHARGE, NOTIFY], redact) == 0
        assert redact_errors(ledger, [], redact) == 0
