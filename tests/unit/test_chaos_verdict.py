"""What the chaos suite holds against a run: a loss, a wrong end, a repeat that nothing excuses, disorder."""

import pytest

from tests.chaos.limit_verdict import judge_limit
from tests.chaos.schedule import DEAD_AFTER
from tests.chaos.topics import Topic
from tests.chaos.verdict import Entry, Happened, Letter, Record, Verdict, judge

PLAIN = Topic(("work",))
KEYED = Topic(("work",), {"commit": "completion", "order": "key"})
STEPS = Topic(("first", "second"), {"commit": "completion", "sequence": ("first", "second")})


def record(uid: str, offset: int = 0, do: str = "ok", who: str = "") -> Record:
    return Record(uid, do, who, b"k", 0, offset)


def done(uid: str, at: float = 10.0, handler: str = "work", pid: int = 1, begun: float | None = None) -> list[Entry]:
    entry = Entry(handler, uid, "t-0-0", "done", at, pid)
    return [entry._replace(outcome="begun", at=at - 0.1 if begun is None else begun), entry]


def letter(uid: str, reason: str, handler: str = "work", at: float = 10.0) -> Letter:
    return Letter(handler, uid, "t-0-0", reason, at)


def happened(
    kind: str, begun: float, lane: str = "worker 1", pids: tuple[int, ...] = (1,), lasts: float = 0
) -> Happened:
    return Happened(lane, kind, begun, begun + lasts, frozenset(pids))


def test_each_record_that_ended_as_it_should_is_no_fault():
    records = [record("a"), record("b", do="dead"), record("c", do="fail 99")]
    found = judge(PLAIN, records, done("a"), [letter("b", "permanent"), letter("c", "exhausted")], [])
    assert found == Verdict(deliveries=3)


def test_what_is_neither_done_nor_dead_is_lost():
    begun, _ = done("a")
    assert len(judge(PLAIN, [record("a")], [begun], [], []).lost) == 1


@pytest.mark.parametrize(("do", "reason"), [("dead", "exhausted"), ("undecodable", "permanent"), ("kill 99", "")])
def test_another_end_than_its_own_is_wrong(do: str, reason: str):
    letters = [letter("a", reason)] if reason else []
    assert len(judge(PLAIN, [record("a", do=do)], [] if reason else done("a"), letters, []).wrong) == 1


@pytest.mark.parametrize("do", ["ok", "dead", "fail 99"])
def test_what_died_as_poison_and_kills_nobody_is_buried_for_another(do: str):
    found = judge(PLAIN, [record("a", do=do)], [], [letter("a", "poison")], [])
    assert (len(found.buried), found.wrong, found.lost) == (1, [], [])


def test_a_dead_letter_of_what_is_done_is_wrong():
    assert len(judge(PLAIN, [record("a")], done("a"), [letter("a", "exhausted")], []).wrong) == 1


def test_what_comes_after_the_dead_in_a_sequence_ends_with_it():
    records = [record("a", do="dead", who="first"), record("b", do="dead", who="second"), record("c", do="ok")]
    book = [*done("b", handler="first"), *done("c", handler="first")]
    letters = [letter("a", "permanent", "first"), letter("b", "permanent", "second")]
    found = judge(STEPS, records, book, letters, [])
    assert [words.partition(" ")[0] for words in found.lost] == ["c"]
    assert found.wrong == []


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([], None),
        ([happened("killed", 10.05)], "worker killed"),
        ([happened("killed", 10.05, pids=(7,))], None),
        ([happened("killed", 19)], None),
        ([happened("killed", 19), happened("silent", 9, "link redis", (), 11)], "worker killed, and the ledger"),
        ([happened("parent frozen", 9, pids=(1, 2), lasts=3)], "worker parent frozen"),
        ([happened("wiped", 15, "redis", ())], "redis wiped"),
        ([happened("wiped", 25, "redis", ())], None),
        ([happened("goes back", 12, "redis", ())], "redis goes back"),
        ([happened("goes back", 19, "redis", ())], None),
        ([happened("silent", 9, "link redis", (), DEAD_AFTER - 1)], None),
        ([happened("silent", 9, "link redis", (), DEAD_AFTER + 1)], "no sign of life for dead_after"),
        ([happened("log goes back", 15, "kafka", ())], None),
    ],
)
def test_what_was_done_twice_needs_a_cause_that_the_documentation_names(faults: list[Happened], why: str | None):
    found = judge(PLAIN, [record("a")], [*done("a", 10), *done("a", 20, pid=2)], [], faults)
    assert [words.startswith(str(why)) for words in found.twice] == ([True] if why else [])
    assert len(found.unexplained) == (not why)


@pytest.mark.parametrize(
    ("sends", "do", "at", "allowed"),
    [
        (True, "kill 1", 10.02, True),
        (False, "kill 1", 10.02, False),
        (True, "ok", 10.02, False),
        (True, "kill 1", 11, False),
        (True, "kill 1", 9.9, False),
    ],
)
def test_what_sends_may_run_again_where_a_neighbour_killed_its_process_before_it_was_sent(
    sends: bool, do: str, at: float, allowed: bool
):
    killer, _ = done("b", begun=at)
    book = [*done("a", 10), killer, *done("a", 20, pid=2), *done("b", 21, pid=2)]
    found = judge(PLAIN._replace(sends=sends), [record("a"), record("b", 1, do)], book, [], [])
    assert (len(found.twice), len(found.unexplained)) == ((1, 0) if allowed else (0, 1))


def test_two_dead_letters_of_a_delivery_need_a_cause_too():
    letters = [letter("a", "permanent"), letter("a", "permanent", at=20)]
    assert len(judge(PLAIN, [record("a", do="dead")], [], letters, []).unexplained) == 1
    wiped = [happened("wiped", 15, "redis", ())]
    assert judge(PLAIN, [record("a", do="dead")], [], letters, wiped).twice == {"dead letter: redis wiped": 1}


def test_what_was_begun_before_what_is_before_it_was_done_is_disorder():
    records = [record("a", 0), record("b", 1)]
    assert judge(KEYED, records, [*done("a", 10), *done("b", 12)], [], []).disorder == []
    assert len(judge(KEYED, records, [*done("a", 10), *done("b", 12, begun=9)], [], []).disorder) == 1
    assert len(judge(KEYED, records, [*done("b", 10), *done("a", 12)], [], []).disorder) == 1


def test_other_keys_and_a_second_run_are_no_disorder():
    records = [record("a", 0), record("b", 1)._replace(key=b"other")]
    assert judge(KEYED, records, [*done("b", 10), *done("a", 12)], [], []).disorder == []
    again = [*done("a", 10), *done("b", 12), *done("a", 14)]
    assert (
        judge(KEYED, [record("a", 0), record("b", 1)], again, [], [happened("wiped", 13, "redis", ())]).disorder == []
    )


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([happened("frozen", 11, pids=(1,), lasts=8.5)], {"dead letter: worker frozen": 1}),
        ([happened("killed", 10.1, pids=(2,))], {"dead letter: worker killed": 1}),
        ([happened("frozen", 11, pids=(3,), lasts=8.5)], {}),
        ([happened("killed", 15, pids=(2,))], {}),
    ],
)
def test_a_second_dead_letter_is_excused_by_what_befell_the_processes_that_ran_its_delivery(faults, why):
    begun = [Entry("work", "a", "t-0-0", "begun", at, pid) for at, pid in ((9.0, 1), (9.9, 2), (25.0, 3))]
    letters = [letter("a", "permanent"), letter("a", "permanent", at=20)]
    found = judge(PLAIN, [record("a", do="dead")], begun, letters, faults)
    assert (found.twice, len(found.unexplained)) == (why, 0 if why else 1)


NAMED = Topic(("work",), {"commit": "completion"}, unique=True)


def named(coordinates: str, at: float, pid: int = 1) -> list[Entry]:
    begun = Entry("work", "a", coordinates, "named", at - 0.1, pid)
    return [begun, begun._replace(outcome="done", at=at)]


@pytest.mark.parametrize(
    ("faults", "unexplained"), [([], 1), ([happened("killed", 10.05)], 0), ([happened("wiped", 15, "redis", ())], 0)]
)
def test_of_two_records_with_one_name_both_are_done_for_a_reason_alone(faults: list[Happened], unexplained: int):
    book = [*named("t-0-0", 10.0), *named("t-0-5", 20.0, pid=2)]
    assert len(judge(NAMED, [record("a"), record("a", 5)], book, [], faults).unexplained) == unexplained


def test_of_two_records_with_one_name_the_old_version_may_do_both_and_one_is_enough():
    by_old = [entry._replace(coordinates="t-0-5", pid=2) for entry in done("a", at=20.0)]
    for book in ([*named("t-0-0", 10.0), *by_old], named("t-0-0", 10.0)):
        found = judge(NAMED, [record("a"), record("a", 5)], book, [], [])
        assert (found.lost, found.unexplained) == ([], [])


@pytest.mark.parametrize(("shares", "unexplained"), [(True, 0), (False, 1)])
def test_what_runs_with_one_that_kills_its_process_may_run_again(shares: bool, unexplained: int):
    killer = Entry("work", "b", "t-0-1", "begun", 9.99 if shares else 8.0, 1)
    again = [entry._replace(at=entry.at + 5, pid=2) for entry in done("a")]
    records = [record("a"), record("b", 1, do="kill 1")]
    book = [*done("a"), killer, *again, *done("b", at=16.0, pid=2)]
    found = judge(Topic(("work",), shares=shares), records, book, [], [])
    assert len(found.unexplained) == unexplained


LIMITED = {"per_second": 10, "burst": 4, "concurrency": 2}


def limited(uid: str, at: float, takes: float = 0.01, pid: int = 1) -> list[Entry]:
    begun = Entry("work", uid, f"t-0-{uid}", "limited", at, pid)
    return [begun, begun._replace(outcome="done", at=at + takes)]


@pytest.mark.parametrize(
    ("starts", "faults", "wrong"),
    [
        ([10 + 0.1 * number for number in range(60)], [], 0),
        ([10 + 0.05 * number for number in range(60)], [], 1),
        ([10 + 0.02 * number for number in range(14)], [], 0),
        ([10 + 0.02 * number for number in range(28)], [], 1),
        ([10 + 0.02 * number for number in range(28)], [happened("wiped", 10.27, "redis", ())], 0),
        ([10 + 0.02 * number for number in range(28)], [happened("killed", 10.27, "redis", ())], 1),
    ],
)
def test_more_starts_than_a_limit_allows_are_wrong_unless_redis_lost_data_meanwhile(
    starts: list[float], faults: list[Happened], wrong: int
):
    book = [entry for number, at in enumerate(starts) for entry in limited(str(number), at)]
    assert len(list(judge_limit(book, faults, LIMITED, processes=2))) == wrong


@pytest.mark.parametrize(
    ("faults", "wrong"),
    [
        ([], 1),
        ([happened("frozen", 10.5, pids=(1,), lasts=6)], 0),
        ([happened("frozen", 10.5, pids=(7,), lasts=6)], 1),
        ([happened("goes back", 5, "redis", ())], 0),
    ],
)
def test_more_runs_at_once_than_a_limit_allows_are_wrong_unless_one_was_frozen_or_redis_lost_data(
    faults: list[Happened], wrong: int
):
    book = [entry for pid, uid in enumerate("abc", 1) for entry in limited(uid, 10 + pid / 10, takes=1, pid=pid)]
    assert len(list(judge_limit(book, faults, LIMITED, processes=2))) == wrong


def test_a_delivery_that_was_given_to_another_process_while_it_ran_counts_once_in_a_limit():
    book = [entry for pid, uid in enumerate("abb", 1) for entry in limited(uid, 10 + pid / 10, takes=1, pid=pid)]
    assert list(judge_limit(book, [], LIMITED, processes=2)) == []
