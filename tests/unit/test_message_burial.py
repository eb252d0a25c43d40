"""What a burial and a copy say of the message whose place they take."""

import json
import time
from base64 import b64decode
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.message_burial import (
    MESSAGE_LENGTH,
    TRACEBACK_LENGTH,
    BurialFailure,
    make_burial,
    make_comeback,
    make_raw_burial,
    read_count,
)


def message(body: bytes = b"[[], {}, {}]", /, **headers: Any) -> Any:
    return SimpleNamespace(
        headers=headers,
        body=body,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_info={"exchange": "", "routing_key": "celery"},
        properties={"priority": 3, "correlation_id": "x", "delivery_tag": "old", "body_encoding": "base64"},
    )


@given(st.binary(), st.dictionaries(st.text(), st.text() | st.integers() | st.floats() | st.binary() | st.none()))
def test_a_burial_is_json_and_keeps_the_body_whatever_the_message(body, headers):
    burial = json.loads(json.dumps(make_burial(message(body, **headers), "invalid", BurialFailure("E", "m"))))
    assert b64decode(burial["body"]) == body
    assert set(burial["headers"]) == set(headers)


def test_a_header_that_looks_like_a_marker_of_kombus_is_text_in_a_burial():
    burial = make_burial(message(when=datetime(2030, 1, 1)), "invalid", BurialFailure("E", "m"))  # noqa: DTZ001
    assert isinstance(burial["headers"]["when"], str)


def test_an_error_is_cut_at_the_stated_lengths():
    burial = make_burial(message(), "failed", BurialFailure("E", "m" * 9999, "begin" + "t" * 99999 + "end"))
    assert len(burial["error_message"]) == MESSAGE_LENGTH
    assert len(burial["error_traceback"]) == TRACEBACK_LENGTH
    assert burial["error_traceback"].endswith("end")


def test_an_error_without_a_text_has_one_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert BurialFailure.of(Mute()).message == "(its text could not be made: ValueError)"


def test_an_entry_that_is_no_message_is_kept_as_it_was():
    assert b64decode(make_raw_burial(b"\xff{", "celery", BurialFailure("E", "m"))["raw"] or "") == b"\xff{"


def test_a_copy_that_comes_back_is_the_same_message_but_for_its_counts_and_its_time():
    marks = {"lost": 1, "redelivered": True, "compression": "zlib", "unknown_since": 5}
    original = message(b"body", id="x", task="t", custom={"a": 1}, **marks)
    copy = make_comeback(original, 5, "why", lost=2)
    eta = copy.headers.pop("eta")
    assert copy.headers == {"id": "x", "task": "t", "custom": {"a": 1}, "lost": 2}
    assert abs(datetime.fromisoformat(eta).timestamp() - time.time() - 5) < 1
    assert abs((copy.eta or 0) - time.time() - 5) < 1
    assert (copy.body, copy.routing_key) == (b"body", "celery")
    assert copy.properties == {"priority": 3, "correlation_id": "x", "delivery_info": {"redelivered": True}}
    assert original.headers["lost"] == 1


@given(st.none() | st.booleans() | st.integers() | st.text() | st.floats() | st.lists(st.integers()))
def test_what_is_no_counter_counts_as_nothing(value):
    counted = read_count({"lost": value}, "lost")
    assert counted == (value if type(value) is int and value > 0 else 0)
    assert read_count(value, "lost") == 0
