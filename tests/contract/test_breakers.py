"""The breakers' script on every Redis: it decides as the model does, whatever happens in whatever order."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.formats.gate_names import again_gate, needs_gate
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import (
    BreakerStatus,
    BreakerTerms,
    CircuitBreakers,
    RunResults,
    align_gates,
    make_breaker_keys,
    read_breaker_status,
)
from bridge.ledger.ledger_scripts import BREAKER_RULES
from lossless.transport.message_gates import MessageGates
from tests.breaker_model import Model
from tests.hypothesis_profiles import examples

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
ENDED = st.builds(
    RunResults,
    good=st.integers(0, 4),
    unclear=st.booleans(),
    failed=st.lists(NAMES, max_size=4, unique=True),
    dead=st.lists(NAMES, max_size=4, unique=True),
    age=st.sampled_from([0.0, 0.0, 1.0, 10.0, 60.0]),
    ran=st.sampled_from([0.0, 1.0, 40.0]),
    last=st.booleans(),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 8.0, 31.0, 700.0]),
        st.sampled_from(["look", "admit", "report", "report", "report"]),
        st.sampled_from(["", "one", "two"]),
        ENDED,
    ),
    max_size=60,
)
TERMS = st.builds(
    BreakerTerms,
    failures=st.integers(1, 5),
    ratio=st.sampled_from([0.25, 0.5, 1.0]),
    window=st.sampled_from([4.0, 30.0]),
    dead_letters=st.integers(1, 8),
    probe_ends=st.booleans(),
)


@pytest.fixture
def breakers(redis_url: str) -> Iterator[CircuitBreakers]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as ledger:
        yield CircuitBreakers(ledger)


def ask(
    client: Any, name: str, now: float, act: str, probe: str, terms: BreakerTerms, ended: RunResults
) -> BreakerStatus:
    return read_breaker_status(
        BREAKER_RULES.run(client, make_breaker_keys("bridge", name), [repr(now), act, probe, *terms.args, *ended.args])
    )


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(terms=TERMS, steps=STEPS)
def test_the_script_decides_as_the_model_does(redis_url: str, terms: BreakerTerms, steps: Any) -> None:
    model, now, name = Model(terms), 1_000_000.0, uuid.uuid4().hex
    with closing(redis.Redis.from_url(redis_url)) as client:
        for wait, act, probe, ended in steps:
            now += wait
            granted = False
            if act == "look":
                model.advance(now)
            elif act == "admit":
                granted = model.admit(now, probe)
            else:
                model.report(now, ended, probe)
            known = ask(client, name, now, act, probe, terms, ended)
            assert known.state == model.state
            assert known.granted is granted
            assert (known.since, known.opened, known.until) == (model.since, model.opened, model.until)
            assert known.allowed == model.allowed(now)
            assert (known.tried, known.silent) == (model.tried, model.silent)
            assert known.next == (model.lease if model.state == "probing" else model.probe)


def test_a_dependency_that_nobody_has_told_of_is_there(breakers: CircuitBreakers) -> None:
    assert breakers.read_statuses({"bank": BreakerTerms()})["bank"].is_closed
    assert breakers.admit("bank", BreakerTerms(), "x").granted
    assert breakers.open_ones(["bank"]) == {}


def test_an_outage_is_seen_by_all_and_says_why(breakers: CircuitBreakers, redis_url: str) -> None:
    terms = BreakerTerms(failures=2)
    with closing(redis.Redis.from_url(redis_url)) as client:
        seconds = float(client.time()[0])
        ask(client, "bank", seconds - 5, "report", "", terms, RunResults(failed=["1"]))
    known = breakers.report("bank", terms, RunResults(failed=["2"], error="ConnectionError: refused"))
    assert (known.before, known.state) == ("closed", "open")
    assert known.why == "2 deliveries failed, and none succeeded between; the last error: ConnectionError: refused"
    assert known.since == seconds - 5
    assert breakers.open_ones(["bank", "mail"]).keys() == {"bank"}
    assert not breakers.admit("bank", terms, "x").granted


@pytest.mark.parametrize("within", [1, 30, 1000, 86_400])
def test_the_script_waits_for_probes_that_hang_as_the_model_does(redis_url: str, within: float) -> None:
    model, name = Model(BreakerTerms(failures=1, probe_within=within)), uuid.uuid4().hex
    with closing(redis.Redis.from_url(redis_url)) as client:
        for now in (1000.0, 1002.0):
            model.report(now, RunResults(failed=["1"]))
            ask(client, name, now, "report", "", model.terms, RunResults(failed=["1"]))
        now = model.probe
        for number in range(25):
            assert model.admit(now, str(number))
            known = ask(client, name, now, "admit", str(number), model.terms, RunResults())
            assert (known.granted, known.lease, known.silent) == (True, model.lease, model.silent)
            now = model.lease


def test_whoever_asks_is_told_when_it_was_tried_and_is_tried_next(breakers: CircuitBreakers, redis_url: str) -> None:
    terms, steps = BreakerTerms(failures=1), [(1000, "report"), (1002, "report"), (1003, "admit"), (1040, "admit")]
    with closing(redis.Redis.from_url(redis_url)) as client:
        for at, act in steps:
            probe = str(at) if act == "admit" else ""
            ask(client, "bank", at, act, probe, terms, RunResults(failed=["1"]))
    known = breakers.open_ones(["bank"])["bank"]
    assert (known.state, known.tried, known.next, known.silent) == ("probing", 1040, 1100, 1)


def test_workers_that_find_a_wiped_redis_at_once_open_it_once_again_and_shut_its_gates(
    breakers: CircuitBreakers, redis_url: str
) -> None:
    terms = BreakerTerms(failures=4)
    with closing(redis.Redis.from_url(redis_url)) as client, ThreadPoolExecutor(8) as pool:
        seconds = float(client.time()[0])
        gates = MessageGates(client)

        def tell(number: int) -> BreakerStatus:
            known = breakers.report("bank", terms, RunResults(failed=[str(number)]))
            if known.before != known.state:
                align_gates(gates, "bridge", "bank", known)
            return known

        for outage in range(5):
            ask(client, "bank", seconds - 5, "report", "", terms, RunResults(failed=["first"]))
            told = list(pool.map(tell, range(16)))
            assert [known.before for known in told if known.before != known.state] == ["closed"]
            assert len({known.opened for known in told if not known.is_closed}) == 1
            assert gates.shut_names().keys() == {needs_gate("bridge", "bank"), again_gate("bridge", "bank")}, outage
            client.flushdb()
            assert breakers.read_statuses({"bank": terms})["bank"].is_closed


def test_a_wiped_redis_has_all_closed(breakers: CircuitBreakers, redis_url: str) -> None:
    terms = BreakerTerms(failures=1)
    with closing(redis.Redis.from_url(redis_url)) as client:
        ask(client, "bank", 1000.0, "report", "", terms, RunResults(failed=["1"]))
        ask(client, "bank", 1002.0, "report", "", terms, RunResults(failed=["1"]))
        assert breakers.open_ones(["bank"])
        client.delete(*make_breaker_keys("bridge", "bank"))
    assert breakers.admit("bank", terms, "x").granted
