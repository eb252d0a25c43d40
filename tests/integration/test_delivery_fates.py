"""Every way in which a delivery can end, in one run of a bridge and a worker with two processes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.processes import DeadLetter, Run, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

TOPICS = (
    "orders",
    "slow",
    "models",
    "raw",
    "texts",
    "async",
    "budget",
    "delays",
    "asked",
    "pair",
    "stop",
    "bound",
    "large",
)
#: Every byte, a repeated name, an empty and a missing value, and names that Celery and the bridge use themselves.
HEADERS: list[tuple[str, bytes | None]] = [
    ("trace", bytes(range(256))),
    ("trace", b"again"),
    ("empty", b""),
    ("null", None),
    ("timelimit", b"5"),
    ("handler", b"not.ours"),
    ("größe", b"1"),
]
KEY = b"\x00key\xff"
MARKER = {"__type__": "datetime", "__value__": "no date"}


def end(name: str, **more: Any) -> dict[str, Any]:
    return {"end": name, **more}


#: name → topic and value.
CASES: dict[str, tuple[str, Any]] = {
    "done": ("orders", end("done")),
    "marker": ("orders", MARKER | {"end": "done"}),
    "tombstone": ("orders", None),
    "transient": ("orders", end("transient", times=2)),
    "exhausted": ("orders", end("exhausted")),
    "permanent": ("orders", end("permanent")),
    "declined": ("orders", end("declined")),
    "later": ("orders", end("later")),
    "unprintable": ("orders", end("unprintable")),
    "unpicklable": ("orders", end("unpicklable")),
    "huge": ("orders", end("huge")),
    "foreign": ("orders", end("foreign")),
    "exit": ("orders", end("exit")),
    "memory": ("orders", end("memory")),
    "ignored": ("orders", end("ignored")),
    "rejected": ("orders", end("rejected")),
    "killed": ("orders", end("killed")),
    "undecodable": ("orders", b"\xff\x00{not json"),
    "empty": ("orders", b""),
    "slow": ("slow", {}),
    "valid": ("models", {"id": 1, "amount": "2.5"}),
    "invalid": ("models", {"id": "one"}),
    "missing": ("models", None),
    "raw": ("raw", bytes(range(256))),
    "text": ("texts", "größe".encode()),
    "no text": ("texts", b"\xff\xfe"),
    "async": ("async", "quick"),
    "async slow": ("async", "slow"),
    "budget": ("budget", {}),
    "delays": ("delays", {}),
    "asked gone": ("asked", end("gone")),
    "asked soon": ("asked", end("soon")),
    "asked broken": ("asked", end("broken")),
    "asked hangs": ("asked", end("hangs")),
    "pair": ("pair", {}),
    "stop": ("stop", {}),
    "bound": ("bound", {}),
    "large": ("large", {"filler": "x" * 2_000}),
}


@dataclass
class Endings:
    """What became of every case."""

    stack: Stack
    coordinates: dict[str, str]
    runs_of: dict[str, list[Run]] = field(default_factory=dict)
    letters_of: dict[str, list[DeadLetter]] = field(default_factory=dict)
    log: str = ""
    metric: Callable[..., float] = lambda *_, **__: 0.0

    def runs(self, case: str, handler: str = "") -> list[Run]:
        found = self.runs_of.get(self.coordinates[case], [])
        return [run for run in found if run.handler.endswith(handler)]

    def outcomes(self, case: str, handler: str = "") -> list[str]:
        return [run.outcome for run in self.runs(case, handler)]

    def letters(self, case: str) -> list[DeadLetter]:
        return self.letters_of.get(self.coordinates[case], [])

    def letter(self, case: str) -> DeadLetter:
        (letter,) = self.letters(case)
        return letter

    def gaps(self, case: str) -> list[float]:
        times = [run.time for run in self.runs(case) if run.outcome == "begun"]
        return [after - before for before, after in pairwise(times)]


@pytest.fixture(scope="module")
def endings(
    kafka: KafkaServer, redis_shared: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endings]:
    folder = tmp_path_factory.mktemp("endings")
    prefix = folder.name
    kafka.create_topics(*(f"{prefix}.{name}" for name in TOPICS), partitions=2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    tight = NewTopic(f"{prefix}.large.dlq", 1, 1, config={"max.message.bytes": "3100"})
    admin.create_topics([tight])[tight.topic].result(30)
    handlers = "tests.handlers.endings"
    with Stack(
        kafka.bootstrap_servers, redis_shared.fresh_url(), prefix, folder, handlers, KAFKA_HANDLERS_VERSION="7.1"
    ) as stack:
        stack.bridge()
        worker = stack.worker()
        found = Endings(stack, {})
        for case, (topic, value) in CASES.items():
            (found.coordinates[case],) = stack.produce(topic, value, key=KEY, headers=HEADERS)
        stopped = [f"{found.coordinates['stop']}:tests.handlers.endings.stop"]
        eventually(lambda: _settled(stack, stopped), 60, "all is settled but the record that stops")
        for run in stack.runs():
            found.runs_of.setdefault(run.coordinates, []).append(run)
        for topic in TOPICS:
            for letter in stack.dead_letters(topic):
                found.letters_of.setdefault(letter.origin, []).append(letter)
        found.log, found.metric = worker.text, worker.metric
        yield found


def _settled(stack: Stack, held: list[str]) -> bool:
    if sum(stack.committed(topic) for topic in TOPICS) < len(CASES):
        return False
    return not stack.waiting() and not stack.waiting(stack.topic("texts.queue")) and stack.held_ids() == held


ENDS = {
    "done": None,
    "marker": None,
    "tombstone": None,
    "transient": None,
    "exhausted": "exhausted",
    "permanent": "permanent",
    "declined": "permanent",
    "later": None,
    "unprintable": "exhausted",
    "unpicklable": "exhausted",
    "huge": "exhausted",
    "foreign": "exhausted",
    "exit": "exhausted",
    "memory": "exhausted",
    "ignored": None,
    "rejected": "permanent",
    "killed": None,
    "undecodable": "undecodable",
    "empty": "undecodable",
    "slow": "exhausted",
    "valid": None,
    "invalid": "undecodable",
    "missing": None,
    "raw": None,
    "text": None,
    "no text": "undecodable",
    "async": None,
    "async slow": "exhausted",
    "budget": "expired",
    "delays": "exhausted",
    "asked gone": "permanent",
    "asked soon": "exhausted",
    "asked broken": "exhausted",
    "asked hangs": "exhausted",
    "pair": None,
    "stop": None,
    "bound": "exhausted",
    "large": "exhausted",
}


@pytest.mark.parametrize("case", CASES)
def test_each_record_has_the_one_end_that_it_should_have(endings, case):
    assert [letter.ours["reason"] for letter in endings.letters(case)] == ([ENDS[case]] if ENDS[case] else [])
    done = [run for run in endings.runs(case) if run.outcome == "done"]
    handlers = 2 if case == "pair" else 1
    assert len(done) == (0 if ENDS[case] or case in ("ignored", "stop") else handlers)


@pytest.mark.parametrize("case", [case for case, reason in ENDS.items() if reason])
def test_a_dead_letter_is_the_record_byte_for_byte_with_ours_behind_the_producers_headers(endings, case):
    letter = endings.letter(case)
    _, value = CASES[case]
    assert letter.record.value() == (value if isinstance(value, bytes) else json.dumps(value).encode())
    assert letter.record.key() == KEY
    assert letter.theirs == HEADERS
    ours = letter.ours
    assert list(ours) == [
        "origin_topic",
        "origin_partition",
        "origin_offset",
        "origin_timestamp",
        "origin_topic_id",
        "handler",
        "bridge_group",
        "delivery_number",
        "attempts",
        "attempts_failed",
        "attempts_lost",
        "attempts_postponed",
        "attempts_replayed",
        "handlers_version",
        "reason",
        "error_class",
        "error_message",
        "error_traceback",
        "first_failed_at",
        "failed_at",
        # It is left out of a letter that was too large for its topic.
        *(["attempt_history"] if case != "large" else []),
    ]
    assert ours["handler"].startswith("tests.handlers.endings.")
    assert ours["handlers_version"] == "7.1"
    assert ours["bridge_group"] == endings.stack.environ["BRIDGE_GROUP"]
    assert 0 < int(ours["origin_timestamp"]) <= int(ours["first_failed_at"]) <= int(ours["failed_at"])


@pytest.mark.parametrize(
    ("case", "attempts"),
    [
        ("exhausted", 3),
        ("permanent", 1),
        ("undecodable", 1),
        ("delays", 3),
        ("bound", 2),
        ("slow", 1),
        ("exit", 3),
        ("asked soon", 3),
    ],
)
def test_a_dead_letter_tells_how_often_the_handler_ran(endings, case, attempts):
    assert endings.letter(case).ours["attempts"] == str(attempts)
    if case != "undecodable":
        assert [run.attempt for run in endings.runs(case)] == list(range(1, attempts + 1))


def test_a_dead_letter_lies_in_the_partition_of_its_record(endings):
    for letters in endings.letters_of.values():
        for letter in letters:
            if not letter.origin.startswith(endings.stack.topic("large")):
                assert str(letter.record.partition()) == letter.ours["origin_partition"]


@pytest.mark.parametrize(
    ("case", "error_class", "words"),
    [
        ("exhausted", "ConnectionError", "always"),
        ("permanent", "tasks.errors.DeadLetter", "no such card"),
        ("declined", "tests.handlers.endings.CardDeclined", "declined"),
        ("unprintable", "tests.handlers.endings.Unprintable", "raised RuntimeError"),
        ("unpicklable", "tests.handlers.endings.Unpicklable", "two parts"),
        ("huge", "ValueError", "characters cut"),
        ("foreign", "ValueError", r"gr\xf6\xdfe \U0001f600 \udc80"),
        ("exit", "SystemExit", "3"),
        ("memory", "MemoryError", "too much"),
        ("slow", "billiard.exceptions.SoftTimeLimitExceeded", ""),
        ("bound", "ConnectionError", "by hand"),
        ("invalid", "tasks.errors.Undecodable", "amount"),
        ("asked gone", "ConnectionError", "gone for good (always)"),
    ],
)
def test_a_dead_letter_says_what_went_wrong(endings, case, error_class, words):
    ours = endings.letter(case).ours
    assert ours["error_class"] == error_class
    assert words in ours["error_message"]
    assert len(ours["error_message"]) < 25_000


def test_a_transient_failure_is_retried_with_backoff_until_it_is_done(endings):
    assert endings.outcomes("transient") == ["begun", "begun", "begun", "done"]
    first, second = endings.gaps("transient")
    # Never early; how late depends on what else the machine does.
    assert first >= 0.99
    assert second >= 1.99


def test_retry_delays_are_kept(endings):
    first, second = endings.gaps("delays")
    assert first >= 0.3
    assert second >= 0.9


def test_retry_when_decides_and_its_retries_are_spent_like_any_other(endings):
    first, second = endings.gaps("asked soon")
    assert first >= 0.4
    assert 0.1 <= second < first + 1
    assert endings.outcomes("asked gone") == ["begun"]


@pytest.mark.parametrize(("case", "words"), [("asked broken", "KeyError"), ("asked hangs", "SoftTimeLimitExceeded")])
def test_a_retry_when_that_raises_or_hangs_is_named_and_the_options_decide(endings, case, words):
    assert endings.outcomes(case) == ["begun"] * 3
    said = [
        line for line in endings.log.splitlines() if f"{endings.coordinates[case]}:" in line and "retry_when" in line
    ]
    assert said
    assert all(words in line for line in said)


def test_retry_later_spends_no_retries(endings):
    assert endings.outcomes("later") == ["begun"] * 5 + ["done"]


def test_give_up_after_bounds_the_time_of_all_attempts(endings):
    # Of the 20 retries at most two begin within the second; that the rest were not made is its dead letter's reason.
    assert 1 <= len(endings.runs("budget")) <= 3


def test_only_the_handler_that_fails_is_retried(endings):
    assert endings.outcomes("pair", "first_of_two") == ["done"]
    assert endings.outcomes("pair", "second_of_two") == ["begun", "done"]


def test_a_handler_sees_key_headers_and_value_as_they_were_produced(endings):
    (run,) = [run for run in endings.runs("marker") if run.outcome == "done"]
    assert run.key == KEY
    assert list(run.headers) == HEADERS
    assert run.value == MARKER | {"end": "done"}


def test_a_tombstone_reaches_the_handler_as_none(endings):
    assert [run.value for run in endings.runs("tombstone")] == [None, None]


def test_codecs_give_bytes_and_text(endings):
    assert [run.value for run in endings.runs("raw")] == [bytes(range(256)).hex()]
    assert [run.value for run in endings.runs("text")] == ["größe"]


def test_a_model_is_given_validated(endings):
    assert [run.value for run in endings.runs("valid")] == [{"id": 1, "amount": 2.5}]


def test_what_does_not_decode_is_not_given_to_the_handler(endings):
    for case in ("undecodable", "empty", "invalid", "no text"):
        assert endings.runs(case) == []


def test_a_delivery_whose_process_is_killed_runs_again(endings):
    assert endings.outcomes("killed") == ["begun", "begun", "done"]


def test_a_message_whose_handler_stops_is_kept_and_that_is_said_loudly(endings):
    coordinates = endings.coordinates["stop"]
    assert endings.outcomes("stop") == ["begun"]
    loud = [line for line in endings.log.splitlines() if "CRITICAL" in line and coordinates in line]
    assert loud
    assert "the bank's keys are gone" in loud[0]
    assert endings.stack.held_ids() == [f"{coordinates}:tests.handlers.endings.stop"]


def test_a_dead_letter_too_large_with_its_traceback_goes_without(endings):
    ours = endings.letter("large").ours
    assert ours["error_traceback"] == ""
    assert ours["error_message"].startswith("far down")


def test_the_other_dead_letters_have_the_traceback_to_its_last_line(endings):
    assert endings.letter("exhausted").ours["error_traceback"].endswith("ConnectionError: always\n")


def test_the_worker_survives_all_of_it(endings):
    assert "Unrecoverable error" not in endings.log
    assert "internal error" not in endings.log.lower()


def test_the_workers_metrics_count_by_handler_and_reason(endings):
    name = "tests.handlers.endings."
    reasons = [ENDS[case] for case, (topic, _) in CASES.items() if topic == "orders" and ENDS[case]]
    for reason in set(reasons):
        found = endings.metric("worker_dead_lettered_total", handler=f"{name}act", reason=reason)
        assert found == reasons.count(reason)
    assert endings.metric("worker_handled_total", handler=f"{name}pair", outcome="done") == 0
    assert endings.metric("worker_handled_total", handler=f"{name}first_of_two", outcome="done") == 1
    assert endings.metric("worker_handled_total", handler=f"{name}second_of_two", outcome="failed") == 1
    assert endings.metric("worker_retried_total", handler=f"{name}delays") == 2
    assert endings.metric("worker_handler_duration_seconds_count", handler=f"{name}delays") == 3
