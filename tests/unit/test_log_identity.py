"""Which log a partition has is decided by the topic's id, by what is committed, and by leader epochs."""

import pytest

from bridge.consumer.log_identity import (
    CommitEvidence,
    LogComparison,
    LogDecision,
    compare_records,
    decide_log,
    merge_known_logs,
)
from bridge.ledger import KnownLog

ID = "abc"


@pytest.mark.parametrize(
    ("known", "said", "log", "met", "what"),
    [
        # Nobody was here.
        (None, CommitEvidence(None, None, -1), KnownLog(ID), LogDecision(None, False, -1), None),
        # A commit of a bridge, and of a person or of a version that said nothing of the log.
        (KnownLog(ID, 0, 3), CommitEvidence(7, ID, 3), KnownLog(ID, 0, 3), LogDecision(7, True, 3), None),
        (None, CommitEvidence(7, ID, 3), KnownLog(ID, 0, 3), LogDecision(7, True, 3), None),
        (KnownLog(ID, 0, 3), CommitEvidence(7, None, -1), KnownLog(ID, 0, 3), LogDecision(7, False, 3), None),
        (None, CommitEvidence(7, None, -1), KnownLog(ID), LogDecision(7, False, -1), None),
        # The ledger went back to before it knew of an epoch that the commit tells of, as of what was read.
        (KnownLog(ID, 0, 2), CommitEvidence(7, ID, 3), KnownLog(ID, 0, 3), LogDecision(7, True, 3), None),
        (KnownLog(ID, 0, 3), CommitEvidence(7, ID, 2), KnownLog(ID, 0, 3), LogDecision(7, True, 3), None),
        # Who knows what a person's tool takes for an epoch.
        (KnownLog(ID, 0, 2), CommitEvidence(7, None, 9), KnownLog(ID, 0, 2), LogDecision(7, False, 2), None),
        # The topic is another, by the commit, or by what bridges knew where nothing is committed.
        (KnownLog("old", 1, 3), CommitEvidence(7, "old.1", 3), KnownLog(ID), LogDecision(2, False, -1), "made anew"),
        (None, CommitEvidence(7, "old", 3), KnownLog(ID), LogDecision(2, False, -1), "made anew"),
        (KnownLog("old"), CommitEvidence(None, None, -1), KnownLog(ID), LogDecision(2, False, -1), "made anew"),
        (KnownLog("old"), CommitEvidence(7, None, -1), KnownLog(ID), LogDecision(2, False, -1), "made anew"),
        # Another bridge was in the new one already.
        (KnownLog("old", 0, 5), CommitEvidence(7, ID, 1), KnownLog(ID, 0, 1), LogDecision(7, True, 1), None),
        # The end lies below what is committed.
        (
            KnownLog(ID, 0, 3),
            CommitEvidence(15, ID, 3),
            KnownLog(ID, 1, 3),
            LogDecision(10, False, 3, back=True),
            "went back",
        ),
        (None, CommitEvidence(15, None, -1), KnownLog(ID, 1), LogDecision(10, False, -1, back=True), "went back"),
        # The commit went back, and the bridge ended before the ledger knew: the commit counts.
        (KnownLog(ID, 1, 3), CommitEvidence(8, f"{ID}.2", 3), KnownLog(ID, 2, 3), LogDecision(8, True, 3), None),
        # The ledger knew of it, and the commit is of the log before.
        (
            KnownLog(ID, 2, 3),
            CommitEvidence(8, f"{ID}.1", 3),
            KnownLog(ID, 2, 3),
            LogDecision(8, False, 3, back=True),
            None,
        ),
        (
            KnownLog(ID, 2, 3),
            CommitEvidence(8, f"{ID}.1", 1),
            KnownLog(ID, 2, 3),
            LogDecision(8, False, 1, back=True),
            None,
        ),
    ],
)
def test_where_to_go_on_is_decided_by_which_log_it_is(known, said, log, met, what):
    assert decide_log(known, ID, said, 2, 10) == (log, met, what)


@pytest.mark.parametrize(
    ("noted", "here", "together"),
    [
        (None, None, None),
        (KnownLog(ID, 0, 3), None, KnownLog(ID, 0, 3)),
        # The ledger was wiped.
        (None, KnownLog(ID, 0, 3), KnownLog(ID, 0, 3)),
        # Another bridge had it meanwhile; or the ledger went back, and this bridge knows better.
        (KnownLog(ID, 1, 5), KnownLog(ID, 0, 3), KnownLog(ID, 1, 5)),
        (KnownLog(ID, 0, 3), KnownLog(ID, 1, 5), KnownLog(ID, 1, 5)),
        # Another bridge was in a topic that was made again.
        (KnownLog(ID, 0, 1), KnownLog("old", 2, 5), KnownLog(ID, 0, 1)),
    ],
)
def test_what_the_ledger_lost_of_a_log_is_known_to_who_has_read_it(noted, here, together):
    assert merge_known_logs(noted, here) == together


@pytest.mark.parametrize(
    ("records", "low", "found"),
    [
        # As expected; after a gap; and nothing is known of epochs.
        ([(5, 1), (6, 1)], 0, LogComparison(False, None, 1)),
        ([(8, 1)], 0, LogComparison(False, None, 1)),
        ([(5, -1)], 0, LogComparison(False, None, -1)),
        # A new leader wrote from 6 on.
        ([(5, 1), (6, 2), (7, 2)], 0, LogComparison(False, 6, 2)),
        # Below what was read.
        ([(3, 1)], 0, LogComparison(True, None, 1)),
        ([(3, 2)], 0, LogComparison(True, 3, 2)),
        # Retention took what lay between.
        ([(8, 1)], 8, LogComparison(True, None, 1)),
        ([(8, 1)], 6, LogComparison(True, None, 1)),
    ],
)
def test_records_say_whether_their_log_is_the_one_that_was_read(records, low, found):
    assert compare_records(KnownLog(ID, 0, 1), 5, low, records) == found


def test_a_logs_id_is_the_topics_until_it_goes_back():
    assert [KnownLog(ID).id, KnownLog(ID, 2, 7).id] == [ID, f"{ID}.2"]
    assert [KnownLog.from_id(ID), KnownLog.from_id(f"{ID}.2")] == [KnownLog(ID), KnownLog(ID, 2)]
