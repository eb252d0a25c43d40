"""What a person sends back runs at the handler that failed and at no other, begins anew there, and its end is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.formats.delivery import Attempts
from bridge.formats.delivery_identity import Origin
from bridge.formats.replay_record import replay_headers
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, LogHistory
from tests.delivery_checks import all_settled, choose, json_of, ledger, letters, send_back
from tests.processes import Stack, eventually

COMPLETION = {"commit": "completion"}
STEPS = tuple(f"tests.handlers.fates.{name}" for name in ("first", "second", "third"))
TOPICS: dict[str, dict[str, Any]] = {
    "odd": COMPLETION,
    "keyed": {**COMPLETION, "order": "key"},
    "line": {**COMPLETION, "order": "partition"},
    "steps": {**COMPLETION, "order": "key", "sequence": STEPS},
}
#: Each failure of tests/handlers/fates.py waits in a retry topic.
PARKS = {"kafka_park_after": 0.2, "kafka_retry_tiers": (1,)}


def fate(fates: Ledger, account: Account, offset: int) -> Fate:
    (found,) = fates.fates_of([(account, [offset])])
    return Fate(found[0])


def fate_of_replay(stack: Stack, topic: str, offset: int) -> Fate:
    """Of a record of the replay topic, where it lies."""
    with ledger(stack, f"{topic}.replay") as (fates, account):
        log = LogHistory(fates).log_id(account.topic, account.topic_id, 0)
        return fate(fates, Account(RETRY_RECORD, account.topic, log, 0), offset)


def start(stack: Stack, *topics: str, **settings: Any) -> None:
    choose(stack, {name: TOPICS[name] for name in topics}, **settings)
    stack.make_topics(*topics)
    stack.worker(wait=False)
    stack.bridge()


@pytest.mark.parametrize(
    "topic", ["odd", pytest.param("keyed", marks=pytest.mark.slow), pytest.param("line", marks=pytest.mark.slow)]
)
def test_it_runs_at_the_handler_that_failed_alone_and_is_done_at_both_fates(stack: Stack, tmp_path: Path, topic: str):
    mended = tmp_path / "mended"
    start(stack, topic)
    (dead, *others) = stack.produce(topic, {topic: {"mend": str(mended)}}, 1, 2, key=b"k", headers=[("trace", b"1")])
    (letter,) = letters(stack, topic, 1)
    eventually(lambda: set(others) <= set(stack.done(topic)), 60, "it holds back no other")
    mended.touch()
    send_back(stack, topic, letter)
    eventually(lambda: dead in stack.done(topic), 60)
    found = all_settled(stack, topic, done=6 if topic == "odd" else 3, letters=1)
    assert found["deaths"] == []
    with ledger(stack, topic) as (fates, account):
        assert fate(fates, account, letter.origin.offset) is Fate.DONE
    assert fate_of_replay(stack, topic, 0) is Fate.DONE
    runs = [(run.handler, run.outcome, run.attempt) for run in stack.runs(coordinates=dead) if run.handler == topic]
    assert runs == [(topic, "begun", 1), (topic, "begun", 2), (topic, "done", 2)]
    (done,) = [run for run in stack.runs(topic, dead) if run.outcome == "done"]
    assert (done.key, done.headers, done.attempts) == (b"k", (("trace", b"1"),), Attempts(replayed=1)._asdict())


@pytest.mark.slow
@pytest.mark.parametrize("parks", [False, True], ids=["retried by Celery", "parked meanwhile"])
@pytest.mark.parametrize(
    ("said", "reason", "failed", "lost"),
    [({"dead": True}, "permanent", 1, 0), ({"until": "/nowhere"}, "exhausted", 6, 0), ({"kill": 9}, "poison", 0, 3)],
    ids=["permanent", "exhausted", "poison"],
)
def test_what_dies_again_has_had_all_its_retries_and_a_letter_of_its_own(
    stack: Stack, said: dict[str, Any], reason: str, failed: int, lost: int, parks: bool
):
    start(stack, "keyed", **(PARKS if parks else {}))
    stack.produce("keyed", said, key=b"k")
    (first,) = letters(stack, "keyed", 1, 60)
    send_back(stack, "keyed", first)
    first, second = letters(stack, "keyed", 2, 60)
    assert [(each.origin, each.reason, each.value) for each in (first, second)] == [
        (first.origin, reason, first.value)
    ] * 2
    assert (first.attempts, second.attempts) == (Attempts(failed, lost), Attempts(failed, lost, replayed=1))
    assert second.number > first.number
    assert second.runs == 2 * first.runs
    assert second.first_failed_at > first.failed_at
    with ledger(stack, "keyed") as (fates, account):
        assert fate(fates, account, 0) is Fate.DEAD
    eventually(lambda: fate_of_replay(stack, "keyed", 0) in (Fate.DEAD, Fate.PARKED), 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "reason", "attempts"),
    [
        ({"until": "/nowhere"}, "exhausted", Attempts(1, replayed=1)),
        ({"dead": True}, "permanent", Attempts(1, replayed=1)),
        ({"kill": 9}, "poison", Attempts(lost=3, replayed=1)),
    ],
    ids=["a retry may cure it", "permanent", "poison"],
)
def test_what_is_sent_back_for_one_attempt_dies_of_its_first_failure_and_is_sent_back_anew(
    stack: Stack, tmp_path: Path, said: dict[str, Any], reason: str, attempts: Attempts
):
    mended = tmp_path / "mended"
    start(stack, "odd")
    (dead,) = stack.produce("odd", {"odd": {"mend": str(mended)}})
    (letter,) = letters(stack, "odd", 1)
    send_back(stack, "odd", letter, json.dumps({"odd": said}).encode(), once=True)
    (_, second) = letters(stack, "odd", 2, 60)
    assert (second.reason, second.attempts, second.theirs) == (reason, attempts, letter.theirs)
    # Nothing is left of that: this time it has its retries.
    send_back(stack, "odd", second, b'{"odd": {"fail": %d}}' % (second.runs + 2))
    eventually(lambda: dead in stack.done("odd"), 60)


@pytest.mark.slow
def test_what_is_sent_back_for_one_attempt_runs_once_more_where_its_process_was_lost(stack: Stack, tmp_path: Path):
    start(stack, "odd")
    mended = tmp_path / "mended"
    (dead,) = stack.produce("odd", {"odd": {"mend": str(mended)}})
    (letter,) = letters(stack, "odd", 1)
    mended.touch()
    send_back(stack, "odd", letter, b'{"odd": {"kill": 1}}', once=True)
    eventually(lambda: dead in stack.done("odd"), 60)
    (done,) = [run for run in stack.runs("odd", dead) if run.outcome == "done"]
    assert done.attempts == Attempts(lost=1, replayed=1)._asdict()


@pytest.mark.slow
@pytest.mark.parametrize("parks", [False, True], ids=["put off by Celery", "parked meanwhile"])
def test_what_is_sent_back_for_one_attempt_and_put_off_has_its_one_attempt_then(
    stack: Stack, tmp_path: Path, parks: bool
):
    start(stack, "odd", **(PARKS if parks else {}))
    mended = tmp_path / "mended"
    (dead,) = stack.produce("odd", {"odd": {"mend": str(mended)}})
    (letter,) = letters(stack, "odd", 1)
    send_back(stack, "odd", letter, b'{"odd": {"later": 2, "until": "/nowhere"}}', once=True)
    (_, second) = letters(stack, "odd", 2, 60)
    assert (second.reason, second.attempts) == ("exhausted", Attempts(1, postponed=2, replayed=1))
    assert bool(stack.has_topic("odd.retry.1s") and stack.records("odd.retry.1s")) is parks
    # And so is one that ends well.
    send_back(stack, "odd", second, b'{"odd": {"later": 1}}', once=True)
    eventually(lambda: dead in stack.done("odd"), 60)


def test_in_a_sequence_it_goes_on_from_there_with_the_value_that_was_sent(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "steps")
    (dead, other) = stack.produce("steps", {"second": {"mend": str(mended)}}, 1, key=b"k", headers=[("trace", b"1")])
    (letter,) = letters(stack, "steps", 1)
    eventually(lambda: other in stack.done("third"), 60)
    send_back(stack, "steps", letter, b'{"n": "mended"}')
    eventually(lambda: dead in stack.done("third"), 60)
    all_settled(stack, "steps", done=6, letters=1)
    runs = [run for run in stack.runs(coordinates=dead) if run.outcome == "done"]
    assert [run.handler for run in runs] == ["first", "second", "third"]
    assert [run.value for run in runs[1:]] == [{"n": "mended"}] * 2
    assert (runs[2].key, runs[2].headers, runs[2].attempts) == (
        b"k",
        (("trace", b"1"),),
        Attempts(replayed=1)._asdict(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("step", ["the handler has succeeded", "Kafka has the next"])
def test_in_a_sequence_it_goes_on_also_where_the_worker_is_killed_between_two_steps(stack: Stack, step: str):
    choose(stack, {"steps": TOPICS["steps"]})
    stack.make_topics("steps")
    worker = stack.worker(wait=False)
    stack.bridge()
    (dead,) = stack.produce("steps", {"second": {"dead": True}}, key=b"k")
    (letter,) = letters(stack, "steps", 1)
    worker.kill()
    killed = stack.worker(HANDLERS="tests.handlers.replay_killed", TEST_KILL_AFTER=step)
    send_back(stack, "steps", letter, b"{}")
    killed.says("kills itself")
    killed.kill()
    stack.worker()
    eventually(lambda: dead in stack.done("third"), 60)
    # What the killed one held comes back later than what it had sent on.
    eventually(lambda: stack.done("second").count(dead) == 2, 60)
    eventually(lambda: fate_of_replay(stack, "steps", 0) is Fate.DONE, 60)
    all_settled(stack, "steps", done=3, letters=1)
    counted = {step: stack.done(step).count(dead) for step in ("first", "second", "third")}
    assert counted == {"first": 1, "second": 2, "third": 1}


@pytest.mark.slow
def test_a_letter_of_an_older_model_is_taken_once_its_handler_upgrades_it(stack: Stack):
    choose(stack, {"modelled": COMPLETION})
    stack.make_topics("modelled")
    worker = stack.worker(wait=False)
    stack.bridge()
    (old,) = stack.produce("modelled", {"number": 5})
    (letter,) = letters(stack, "modelled", 1)
    assert (letter.reason, letter.error_message) == ("undecodable", "1 fault(s) in the value: id: Field required")
    worker.terminate()
    stack.worker(TEST_UPGRADE="1")
    send_back(stack, "modelled", letter)
    eventually(lambda: old in stack.done("modelled"), 60)
    (new,) = stack.produce("modelled", {"number": 6})
    eventually(lambda: new in stack.done("modelled"), 60, "also what comes live")
    stack.produce("modelled", {"n": 7})
    (*_, last) = letters(stack, "modelled", 2)
    assert last.error_message == "1 fault(s) in the value: id: Field required; its upgrade raised KeyError: 'number'"


@pytest.mark.slow
def test_a_parked_retry_of_an_older_model_is_taken_as_it_comes_back_once_its_handler_upgrades_it(stack: Stack):
    choose(stack, {"modelled": COMPLETION}, kafka_park_after=1, kafka_retry_tiers=(20,))
    stack.make_topics("modelled")
    worker = stack.worker(TEST_OLDER="20")
    stack.bridge()
    (old,) = stack.produce("modelled", {"number": 5}, key=b"k")
    eventually(lambda: stack.records("modelled.retry.20s"), 40, "it is parked")
    worker.terminate()
    stack.worker(TEST_UPGRADE="1")
    eventually(lambda: old in stack.done("modelled"), 60)
    assert [(run.outcome, run.attempt, run.value, run.key) for run in stack.runs("modelled", old)] == [
        ("begun", 1, 5, b"k"),
        ("done", 2, 5, b"k"),
    ]
    all_settled(stack, "modelled", done=1)


@pytest.mark.slow
def test_in_a_sequence_what_dies_further_on_has_a_letter_of_its_own_from_which_it_goes_on(stack: Stack):
    start(stack, "steps", **PARKS)
    (dead,) = stack.produce("steps", {"first": {"dead": True}}, key=b"k")
    (first,) = letters(stack, "steps", 1)
    send_back(stack, "steps", first, b'{"second": {"until": "/nowhere"}}')
    first, second = letters(stack, "steps", 2, 60)
    assert (second.origin.handler, second.reason, second.attempts) == (STEPS[1], "exhausted", Attempts(6, replayed=1))
    assert stack.done("third") == []
    send_back(stack, "steps", second, b"{}")
    eventually(lambda: dead in stack.done("third"), 60)
    all_settled(stack, "steps", done=3, letters=2)


def test_what_is_asked_to_run_again_runs_though_it_is_done_and_once_for_each_time(stack: Stack):
    start(stack, "keyed", **PARKS)
    (done,) = stack.produce("keyed", {"n": 1}, key=b"k")
    eventually(lambda: stack.done("keyed") == [done], 60)
    with ledger(stack, "keyed") as (fates, account):
        eventually(lambda: fate(fates, account, 0) is Fate.DONE, 60)
        origin = Origin(account.topic, account.topic_id, 0, 0, "keyed", stack.environ["BRIDGE_GROUP"])
    # The first is skipped, as ever. The last waits in a retry topic on its way.
    for value, again in ((b"{}", ""), (b"{}", "plan-1"), (b'{"fail": 2}', "plan-2")):
        headers = replay_headers(origin, (), timestamp=None, runs=1, again=again)
        stack.produce("keyed.replay", value, key=b"k", headers=headers)
    eventually(lambda: stack.done("keyed") == [done] * 3, 40)
    ended = [Fate.DONE, Fate.DONE, Fate.PARKED]
    eventually(lambda: [fate_of_replay(stack, "keyed", offset) for offset in range(3)] == ended, 60)
    all_settled(stack, "keyed", done=1)
    assert stack.dead_letters("keyed") == []


@pytest.mark.slow
def test_what_is_asked_to_run_again_and_fails_is_a_dead_letter_of_what_is_done_still(stack: Stack):
    start(stack, "keyed")
    (done,) = stack.produce("keyed", {"n": 1}, key=b"k")
    eventually(lambda: stack.done("keyed") == [done], 60)
    with ledger(stack, "keyed") as (fates, account):
        eventually(lambda: fate(fates, account, 0) is Fate.DONE, 60)
        origin = Origin(account.topic, account.topic_id, 0, 0, "keyed", stack.environ["BRIDGE_GROUP"])
    asked = replay_headers(origin, (), timestamp=None, again="plan-1")
    stack.produce("keyed.replay", b'{"dead": true}', key=b"k", headers=asked)
    (letter,) = letters(stack, "keyed", 1)
    assert (letter.again, letter.origin, letter.attempts) == ("plan-1", origin, Attempts(1, replayed=1))
    eventually(lambda: fate_of_replay(stack, "keyed", 0) is Fate.DEAD, 60)
    found = all_settled(stack, "keyed", done=1, letters=1)
    assert (found["clean"], found["deaths"]) == (True, [])
    assert not [problem for problem in json_of(stack, "status")["problems"] if "dead" in problem]
    (delivery,) = json_of(stack, "find", done)["deliveries"]
    assert delivery["fate"] == "done"
    # Its letter is sent back as it was asked for, or it would be skipped.
    send_back(stack, "keyed", letter, b"{}", again="plan-2")
    eventually(lambda: stack.done("keyed") == [done] * 2, 60)
