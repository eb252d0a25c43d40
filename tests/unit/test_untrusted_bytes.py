"""Whatever bytes another program has written, each reader of them answers, and what it read can be shown and kept."""

import json
import logging
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from bridge.deadletters.db.letter_transfer import check_imported_letter
from bridge.deadletters.inspection.letter_file import FORMAT, _read_header_line, read_letter_line
from bridge.errors import MalformedDelivery, NoExport
from bridge.formats import (
    celery_header,
    dead_letter_record,
    foreign_dead_letter,
    group_decision,
    retry_record,
)
from bridge.formats.group_decision import (
    find_changed_policies,
    format_options,
    list_policy_changes,
    read_changed_options,
    read_option_values,
    summarize_policy_changes,
)
from bridge.formats.halt_scope import HaltScope, find_small_halts
from bridge.formats.text_forms import format_time
from bridge.formats.untrusted_json import log_skipped_once
from bridge.inspection.consumption_problems import find_halted_topics, find_handler_halts
from bridge.inspection.report_tables import print_status
from bridge.inspection.status import redact_facts
from bridge.inspection.status_report import make_status_data
from bridge.inspection.status_sources import StatusSources
from bridge.jobs.backlog import add_up_counts
from bridge.jobs.deployment_problems import (
    find_divided_topics,
    find_other_applications,
    find_unconsumed_queues,
    find_unknown_handlers,
)
from bridge.jobs.group_facts import GroupFacts, HandlerFacts, HandlerHalt
from bridge.jobs.handler_health import find_hung_handlers, find_skewed_clocks, find_slow_workers
from bridge.kafka.control_topic import find_last_decisions
from bridge.ledger import decision_store as mirror
from bridge.ledger.breaker_state import _read_open_breaker, read_breaker_status
from bridge.ledger.group_members import read_announcement
from bridge.ledger.handoff_times import read_steps
from bridge.ledger.log_history import _read_change, _read_notes, _read_time
from bridge.operator_actions.handler_halt import make_handler_halt_view
from bridge.operator_actions.topic_halt import make_halt_view

_HUGE = "9" * 400
_DEEP = "[" * 100_000 + "]" * 100_000
_ODD = [b"", b"\xff", b"null", b"7", b"[]", b"{}", b'"\\ud800"', _HUGE.encode(), _DEEP.encode(), b"NaN", b"-Infinity"]
#: In the place of one value of a good text.
_WRONG = [
    _HUGE,
    f"-{_HUGE}",
    "1e999",
    "NaN",
    "1e300",
    "-1",
    "{}",
    "[]",
    "null",
    "true",
    '"x"',
    '"\\ud800"',
    _DEEP,
    "[7]",
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for name, inner in inside for each in _places(inner, (*path, name)))]


def _spoilt(good: Any, path: tuple[Any, ...], wrong: str) -> bytes:
    """A good text of which one value is another."""
    mark = "\0here"
    made = json.loads(json.dumps(good))
    if not path:
        return wrong.encode()
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = mark
    return json.dumps(made).replace(json.dumps(mark), wrong).encode()


def spoilt(good: Any) -> st.SearchStrategy[bytes]:
    """Bytes of anybody, and good texts with something wrong in any place."""
    places = st.builds(_spoilt, st.just(good), st.sampled_from(_places(good)), st.sampled_from(_WRONG))
    return st.sampled_from(_ODD) | st.binary(max_size=40) | places


class Record:
    """A record of Kafka's, as its client gives it."""

    def __init__(self, key: Any, value: bytes | None, headers: Any = None) -> None:
        self._parts = (key, value, headers)

    def key(self) -> Any:
        return self._parts[0]

    def value(self) -> bytes | None:
        return self._parts[1]

    def headers(self) -> Any:
        return self._parts[2]

    def topic(self) -> str:
        return "bridge.control"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 5

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


_CHANGE = {"id": "a", "data": {"since": 5.5, "max_retries": {"is": [1], "by": "ann", "at": 7, "why": "w"}}}
_DECISION = {**_CHANGE, "by": "ann", "at": 9.5, "why": "the bank is closed"}
DECISIONS = spoilt({**_DECISION, "history": [_DECISION]})
KEYS = st.sampled_from(
    [b"halt:orders", b"policy:orders.charge", b"halt:\xff", b"halt-handler:orders:h%20h:%FF", b"halt-handler:%FF:h"]
)


@settings(max_examples=150)
@given(KEYS, DECISIONS)
@example(b"halt:orders", _spoilt(_DECISION, ("data", "since"), _HUGE))
@example(b"halt:orders", _spoilt(_DECISION, ("data",), _DEEP))
def test_whatever_lies_in_the_control_topic_or_its_mirror_is_read_shown_and_written_again(key: bytes, value: bytes):
    found = find_last_decisions([Record(key, value)])  # type: ignore[list-item]
    fields = {f"is {key.decode(errors='replace')}": f"5 id {value.decode(errors='surrogateescape')}"}
    mirrored = mirror._read_mirror(fields)
    standing = [each.decision for each in (*found.values(), *mirrored.published.values())]
    for decision in standing:
        again = group_decision.read_decision(decision.key, decision.to_value().encode())
        assert again == decision, "it can be published again"
        f"{format_time(decision.at)} {format_time(decision.since)} {summarize_policy_changes(decision.data)} "
        f"{format_options(read_option_values(decision.data))}".encode()
        json.dumps([make_halt_view(decision), *(each.by for each in list_policy_changes(decision))], allow_nan=False)
        assert len(find_changed_policies({decision.key: decision})) <= len(read_changed_options(decision.data))
    halts = {f"orders{at}": each for at, each in enumerate(standing) if each.data is not None}
    small = [HandlerHalt(*each) for each in find_small_halts({each.key: each for each in standing}).items()]
    told = GroupFacts(10.0, "bridge", halts=halts, handler_halts=small)
    for facts in (told, redact_facts(told)):
        "".join(map(str, [*find_halted_topics(facts), *find_handler_halts(facts)])).encode()
    json.dumps([make_handler_halt_view(each.scope, each.halt) for each in small], allow_nan=False)


def test_a_record_that_is_no_decision_is_named_once_and_the_one_before_it_stands(caplog: pytest.LogCaptureFixture):
    log_skipped_once.cache_clear()
    made = group_decision.append_decision(
        "halt:skipped", None, group_decision.make_decision_entry({"since": 5.0}, "ann", 5.0, "w")
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            good, bad = Record(b"halt:skipped", made.to_value().encode()), Record(b"halt:skipped", _DEEP.encode())
            found = find_last_decisions([good, bad])  # type: ignore[list-item]
    assert found["halt:skipped"].decision == made
    assert caplog.text.count("record 5 of the control topic 'bridge.control' cannot be read") == 1


_PLACE = {"topic": "orders", "partition": 3, "handler": "orders.handlers.charge"}
_MEMBER = {
    "group": "bridge",
    "versions": {"celery-kafka-bridge": "1"},
    "started": 5.5,
    "since": 5.5,
    "queues": ["bridge"],
    "handlers": ["orders.handlers.charge"],
    "handler_versions": {"orders.handlers.charge": "1"},
    "processes": 2,
    "holds": {"bridge": {"orders.handlers.charge": 4}},
    "due": {"bridge": {"orders.handlers.charge": 4}},
    "routes": {"orders": ["orders.handlers.charge"]},
    "assigned": ["orders-3"],
    "paused": {"orders-3": "halted"},
    "paused_since": {"orders-3": 5.5},
    "obstacles": ["Kafka does not answer"],
    "obstacles_since": [5.5],
    "unmade": ["'orders.dlq': not allowed"],
    "unmade_since": [5.5],
    "waiting": [{**_PLACE, "offset": 5, "seconds": 1.5}],
    "hot_keys": [{**_PLACE, "offset": 5, "count": 200, "seconds": 90.5}],
    "dead_holds": [{**_PLACE, "offset": 5, "dead": 2, "behind": 90, "since": 5.5}],
    "batches": {"orders.handlers.charge": {"size": 5, "why": "w"}},
    "behind": [{"topic": "orders", "partition": 3, "count": 5, "since": 5.5}],
    "unaccounted": [{**_PLACE, "count": 5, "since": 5.5}],
    "oldest": [{"topic": "orders", "handler": "orders.handlers.charge", "seconds": 5.5}],
    "backlog": {"bridge": {"ready": {"deliveries": 5, "seconds": None}}},
    "running": [{"handler": "orders.handlers.charge", "record": "orders-3-5", "pid": 7, "seconds": 900.5}],
    "backlog_growth": {"bridge": {"deliveries": 500, "seconds": 900.5, "rate": 2.5, "since": 5.5}},
    "costs": {"orders.handlers.charge": 0.5},
    "host": "h",
    "clock_skew": 7.5,
    "clock_skew_since": 5.5,
    "of a newer version": {"at": [1]},
}


@settings(max_examples=200)
@given(st.sampled_from(["bridges", "workers", "recorders"]), spoilt(_MEMBER))
@example("workers", json.dumps(_MEMBER).encode())
def test_whatever_a_member_announces_the_status_and_its_sentences_can_be_made(kind: Any, raw: bytes):
    state = read_announcement(raw, kind, "here")
    if state is None:
        return
    there = {"here": state}
    facts = GroupFacts(
        10.0,
        "bridge",
        [HandlerFacts("orders.handlers.charge", ("orders",), "bridge")],
        bridges=there if kind == "bridges" else {},
        workers=there if kind == "workers" else {},
        queues={"bridge": 5},
    )
    made = make_status_data(StatusSources(facts), ["orders"])
    found = {
        **find_unconsumed_queues(facts),
        **find_unknown_handlers(facts),
        **find_divided_topics(facts),
        **find_other_applications(facts),
    }
    found |= {
        str(problem): problem
        for seen in (find_hung_handlers, find_slow_workers, find_skewed_clocks)
        for problem in seen(facts)
    }
    totals = add_up_counts([state.get("holds"), state.get("due")])
    assert json.dumps([made, {name: str(each) for name, each in found.items()}, totals], allow_nan=False).encode()
    print_status(Console(file=StringIO(), width=200), made)


NUMBERS = st.sampled_from([b"", b"0", b"-5", b"7.5", b"inf", b"nan", b"1e300", _HUGE.encode(), b"x", b"\xff", b"open"])


@given(st.lists(NUMBERS, min_size=12, max_size=12))
def test_whatever_redis_has_of_a_breaker_it_is_known_and_told(row: list[bytes]):
    for known in (read_breaker_status(row), _read_open_breaker(row[:9])):
        assert known.state in ("closed", "open", "probing", "ramping")
        words = known.words("bank")
        assert isinstance(words, tuple | None)
        format_time(known.since), format_time(known.tried), format_time(known.next)


_LOG_CHANGE = {"topic": "orders", "partition": 3, "what": "went back", "first": 1, "end": 2, "lost": 0, "at": 5.5}


@given(spoilt(_LOG_CHANGE), NUMBERS)
def test_whatever_redis_has_of_logs_and_hand_offs_is_read_or_skipped(change: bytes, number: bytes):
    changes = list(_read_notes("a change", enumerate([change]), lambda _, raw: _read_change(raw)))
    moments = list(_read_notes("a moment", [("x", number)], lambda _, raw: _read_time(raw)))
    json.dumps([[*each, format_time(each.at)] for each in changes] + list(map(format_time, moments)), allow_nan=False)
    assert isinstance(read_steps({number: b"5-7", b"1": number}), list)


_OURS = {
    "origin_topic": b"orders",
    "origin_partition": b"3",
    "origin_offset": b"5",
    "origin_timestamp": b"7",
    "handler": b"orders.handlers.charge",
    "bridge_group": b"bridge",
    "attempts": b"3",
    "attempts_failed": b"3",
    "retry_timestamp": b"7",
    "retry_until": b"8",
    "failed_at": b"7",
    "first_failed_at": b"7",
    "kafka_dlt-original-partition": b"\0\0\0\1",
    "kafka_dlt-original-offset": b"\0\0\0\1",
}
_NUMBERS_IN_HEADERS = [_HUGE.encode(), b"9" * 19, b"-1", b"\xff", b"", None, "٣".encode(), b"9" * 5_000]


@settings(max_examples=150)
@given(st.sampled_from(sorted(_OURS)), st.sampled_from(_NUMBERS_IN_HEADERS), st.sampled_from([None, 5, [("a",)]]))
def test_whatever_the_headers_of_a_record_say_it_is_read_or_none_of_ours(name: str, wrong: Any, odd: Any):
    for headers in ([*{**_OURS, name: wrong}.items()], odd):
        record: Any = Record(b"k", b"v", headers)
        found = dead_letter_record.read_dead_letter_summary(record)
        assert found is None or format_time(found.failed_at)
        origin = retry_record.read_retry_origin(record)
        assert origin is None or origin.offset < 2**63
        held = retry_record.read_retry_record(record, "cluster", "id")
        assert held is None or held.delivery.message.offset < 2**63
        dead = dead_letter_record.read_dead_letter(record)
        assert dead is None or dead.origin.offset < 2**63
    foreign_dead_letter.read_foreign_dead_letter([*{**_OURS, name: wrong}.items()])


_BATCH = {
    "topic": "orders",
    "partition": 3,
    "cluster": "c",
    "group": "bridge",
    "topic_id": "id",
    "messages": [[5, 7, "aw==", "dg==", [["a", "Yg=="]], {"attempts": 1, "number": 2, "dead": {"reason": "r"}}]],
}


@settings(max_examples=150)
@given(spoilt(_BATCH))
def test_whatever_the_header_of_a_celery_message_holds_is_a_batch_or_malformed(raw: bytes):
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return
    with suppress(MalformedDelivery):
        assert celery_header.from_header("orders.handlers.charge", data).deliveries
    found = celery_header.HeaderContents.from_headers({"kafka": data})
    assert found is None or len(list(found.metadata())) == len(found.offsets)


_EXPORT_HEADER = {"format": FORMAT, "facts": {"cluster": "c"}, "positions": [{"topic": "orders", "next": 5}]}
_LETTER = {
    "digest": {"base64": "AA=="},
    "consumer_group": "bridge",
    "topic": "orders",
    "topic_id": "",
    "partition": 3,
    "offset": 5,
    "handler": "orders.handlers.charge",
    "status": "open",
    "failed_at": "2027-01-15T08:00:00.123+00:00",
    "headers": [["a", {"text": "b", "base64": "Yg=="}]],
    "history": [{"number": 1, "failed_at": 7, "value": {"base64": "Yg=="}}],
}


@settings(max_examples=150)
@given(spoilt(_EXPORT_HEADER), spoilt(_LETTER))
@example(_spoilt(_EXPORT_HEADER, ("positions",), _DEEP), b"")
def test_whatever_a_line_of_a_letter_file_holds_it_is_taken_or_refused(header: bytes, letter: bytes):
    for line in (header, letter):
        found = _read_header_line(line)
        assert found is None or json.dumps(found, allow_nan=False).encode()
        with suppress(NoExport):
            check_imported_letter(read_letter_line(line))


def test_a_field_of_each_kind_that_is_as_announced_is_kept():
    state = read_announcement(json.dumps(_MEMBER).encode(), "workers", "here")
    assert state == _MEMBER


def test_a_masked_status_has_no_key_of_a_halt():
    scope = HaltScope("orders", "h", "zebra")
    made = group_decision.append_decision(
        scope.decision_key, None, group_decision.make_decision_entry({"since": 5.0}, "ann", 5.0, "w")
    )
    whole = HandlerHalt(scope._replace(key=None), made)
    facts = redact_facts(GroupFacts(10.0, "bridge", handler_halts=[whole, HandlerHalt(scope, made)]))
    assert facts.handler_halts[0] == whole
    assert "zebra" not in "".join(find_handler_halts(facts))
