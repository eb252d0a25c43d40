"""What a task has done along with its acknowledgement goes with its success, and with nothing else."""

import pickle
from typing import Any

import pytest
from celery.app.trace import fast_trace_task

from lossless.worker import acknowledgement_bundle
from lossless.worker.acknowledgement_bundle import BundledStep, bundle_step, run_traced
from lossless.worker.request import Request

STEP = BundledStep(["key"], [1, b"\xff"])


def ends(failed: int = 0, result: object = "'fine'", says: bool = True) -> Any:
    """A trace whose task says that something is to be done along, and then ends so."""

    def trace(otherwise: Any) -> Any:
        assert bundle_step(STEP, otherwise) is True or not says
        if isinstance(result, BaseException):
            raise result
        return failed, result, 0.5

    return trace


def test_it_comes_with_the_result_that_celery_tells_of_a_success() -> None:
    failed, result, seconds = pickle.loads(pickle.dumps(run_traced(ends(), lambda: None)))
    assert (failed, result, seconds) == (0, acknowledgement_bundle.BundledResult("'fine'", STEP), 0.5)


def test_what_celery_has_fail_afterwards_is_done_otherwise() -> None:
    done: list[str] = []
    failure = object()
    assert run_traced(ends(1, failure), lambda: done.append("otherwise")) == (1, failure, 0.5)
    assert done == ["otherwise"]


def test_a_process_that_leaves_does_it_otherwise_first() -> None:
    done: list[str] = []
    with pytest.raises(SystemExit):
        run_traced(ends(result=SystemExit()), lambda: done.append("otherwise"))
    assert done == ["otherwise"]


def test_what_cannot_be_done_otherwise_is_told_and_changes_no_end() -> None:
    def otherwise() -> None:
        raise OSError("away")

    assert run_traced(ends(1, "it failed"), otherwise) == (1, "it failed", 0.5)


def test_where_nobody_listens_nothing_is_promised() -> None:
    assert not bundle_step(STEP, lambda: None)
    run_traced(lambda: (0, "", 0.1))
    assert not bundle_step(STEP, lambda: None)


def test_what_a_run_said_is_forgotten_with_it() -> None:
    run_traced(ends(), lambda: None)
    assert not hasattr(run_traced(lambda: (0, "next", 0.1))[1], "step")


def test_a_text_of_the_same_words_says_nothing() -> None:
    text = run_traced(lambda: (0, repr(STEP), 0.1))[1]
    assert not hasattr(text, "step")


def test_celerys_own_traces_are_those_that_are_listened_to() -> None:
    assert fast_trace_task in acknowledgement_bundle.TRACES


class _Channel:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def bundle_with_ack(self, *told: Any) -> None:
        self.told.append(told)


class _Request(Request):
    """As Celery makes one of each task."""

    heard: Any = None

    def __init__(self, channel: _Channel) -> None:
        self._message = type("Message", (), {"channel": channel, "delivery_tag": "owner.1"})
        self._on_ack = lambda *_: channel.told.append("ack")
        self._connection_errors = ()

    def on_success(self, failed__retval__runtime: Any, **_: Any) -> None:
        self.acknowledge()
        self.heard = failed__retval__runtime


def test_it_is_said_to_the_channel_before_the_acknowledgement() -> None:
    channel = _Channel()
    request = _Request(channel)
    request.on_success((0, acknowledgement_bundle.BundledResult("fine", STEP), 0.5))
    assert channel.told == [("owner.1", *STEP), "ack"]
    assert request.heard == (0, "fine", 0.5)
    assert type(request.heard[1]) is str


def test_a_task_that_says_nothing_is_acknowledged_and_no_more() -> None:
    channel = _Channel()
    _Request(channel).on_success((0, "fine", 0.5))
    assert channel.told == ["ack"]
