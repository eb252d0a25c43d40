"""What is sent back is read as a delivery of the one handler that begins anew, whatever its dead letter was."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import retry_record
from bridge.formats.delivery import NO_ATTEMPTS, Attempts
from bridge.formats.delivery_identity import Origin
from bridge.formats.replay_record import replay_headers

names = st.text("abcxyz._-", min_size=1, max_size=20)
counts = st.integers(0, 10_000)


class Record:
    """A record of the replay topic."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        return self._headers

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return b"v"

    def topic(self) -> str:
        return "orders.replay"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 9


@given(
    origin=st.builds(Origin, names, names, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), names, names),
    theirs=st.lists(st.tuples(st.sampled_from(["trace", "handler", "origin_topic", "replay_once"]), st.binary())),
    timestamp=st.none() | st.integers(0, 2**53),
    number=counts,
    runs=counts,
    attempts=st.builds(Attempts, *[counts] * 4),
    again=st.sampled_from(["", "plan-7"]),
    once=st.booleans(),
    trace=st.sampled_from(["", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
)
def test_it_has_all_its_retries_and_keeps_whose_it_is(
    origin, theirs, timestamp, number, runs, attempts, again, once, trace
):
    asked = {"again": again, "once": once, "trace": trace}
    written = replay_headers(origin, theirs, timestamp=timestamp, number=number, runs=runs, attempts=attempts, **asked)
    record: Any = Record(written)
    found = retry_record.read_retry_record(record, "cluster", "replay-log")
    assert found is not None
    delivery, message = found.delivery, found.delivery.message
    assert (delivery.identity, found.group, found.topic_id) == (origin.identity, origin.group, origin.topic_id)
    assert (message.headers, message.timestamp, message.key, message.value) == (tuple(theirs), timestamp, b"k", b"v")
    assert delivery.attempts == Attempts(replayed=attempts.replayed + 1)
    assert (delivery.number, delivery.runs, message.attempt) == (number + 1, runs, runs + 1)
    assert (delivery.first_failed_at, delivery.due, found.due, delivery.error) == (None, None, 0, "")
    assert (delivery.again, delivery.once, delivery.trace) == (again, once, trace)


def test_what_never_died_may_be_sent_too():
    record: Any = Record(replay_headers(Origin("orders", "log", 3, 7, "work", "g"), (), timestamp=None))
    found = retry_record.read_retry_record(record, "cluster", "replay-log")
    assert found is not None
    assert (found.delivery.number, found.delivery.attempts) == (1, NO_ATTEMPTS.plus(replayed=1))
