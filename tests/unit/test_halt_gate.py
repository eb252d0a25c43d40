"""A worker's process looks whether a topic is halted at little cost, and never goes on for want of an answer."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ResponseError

from bridge import settings
from bridge.errors import LedgerUnavailable, NotDecided
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.group_decision import (
    GroupDecision,
    PublishedDecision,
    append_decision,
    halt_key,
    make_decision_entry,
)
from bridge.formats.halt_scope import HaltScope
from bridge.ledger.decision_store import DecisionOutcome, MirroredDecisions
from tasks.errors import StopConsuming, TopicHalted
from tasks.execution import halt_gate
from tasks.execution.halt_gate import HaltGuard
from tasks.policy.effective_decisions import HOLDS, PATIENCE, DecisionCache

KEY = halt_key("orders")
CHARGE = HaltScope("orders", "charge")
KEY_OF_CHARGE = HaltScope("orders", "charge", "47:11")
HALT = append_decision(KEY, None, make_decision_entry({"since": 1.0}, "ann", 1.0, "the bank is closed"))
RESUMED = append_decision(KEY, HALT, make_decision_entry(None, "bob", 2.0, ""))


class Mirror:
    """What Redis knows; counts what it is asked."""

    def __init__(self) -> None:
        self.stands: GroupDecision | None = None
        self.away, self.slow = False, 0.0
        self.told, self.whole = "", False
        self.versions = self.reads = 0
        self.now = 0.0

    def version(self) -> str:
        self.versions += 1
        self.now += self.slow
        if self.away:
            raise LedgerUnavailable("no answer")
        return self.told if self.stands is None else f"{self.told}{self.stands.change.id}"

    def read(self) -> MirroredDecisions:
        self.reads += 1
        stands = {} if self.stands is None else {self.stands.key: PublishedDecision(self.stands, 1)}
        return MirroredDecisions(self.version(), stands, {}, self.whole)


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
def control(mirror: Mirror) -> DecisionCache:
    made: Any = mirror
    return DecisionCache(made, lambda: mirror.now)


def test_redis_is_asked_once_a_second_for_one_field_and_for_all_only_when_that_has_changed(
    mirror: Mirror, control: DecisionCache
):
    mirror.stands = RESUMED
    for _ in range(100):
        assert control.halt("orders") is None
    assert (mirror.versions, mirror.reads) == (2, 1)
    mirror.stands = HALT
    assert control.halt("orders") is None
    mirror.now += HOLDS
    found = control.halt("orders")
    assert found is not None
    assert (found.by, found.why) == ("ann", "the bank is closed")
    assert control.halt("invoices") is None
    mirror.now += HOLDS
    control.halt("orders")
    assert mirror.reads == 2


def test_what_was_known_last_holds_while_redis_is_away_or_was_wiped(mirror: Mirror, control: DecisionCache):
    mirror.stands = HALT
    assert control.halt("orders")
    mirror.away = True
    mirror.now += HOLDS
    assert control.halt("orders")
    mirror.away, mirror.stands = False, None
    assert control.halt("orders", anew=True)
    mirror.stands = RESUMED
    assert control.halt("orders", anew=True) is None


def test_a_halt_that_a_wiped_redis_lost_holds_no_worker_once_a_bridge_has_said_all_that_stands(
    mirror: Mirror, control: DecisionCache
):
    """Kafka never had it: nobody knows of it any more, and nobody could take it back."""
    mirror.stands = HALT
    assert control.halt("orders")
    mirror.stands = None
    assert control.halt("orders", anew=True)
    mirror.told = "somebody has decided something else"
    assert control.halt("orders", anew=True), "a bridge may be about to put it back"
    mirror.told, mirror.whole = "a bridge has looked", True
    assert control.halt("orders", anew=True) is None


def test_a_redis_that_takes_long_to_fail_is_asked_the_less(mirror: Mirror, control: DecisionCache):
    mirror.away, mirror.slow = True, 2.0
    control.halt("orders")
    mirror.now += 2.0 * PATIENCE - 0.1
    control.halt("orders")
    assert mirror.versions == 1
    mirror.now += 0.2
    control.halt("orders")
    assert mirror.versions == 2


class Gates:
    """The broker's gates; `meanwhile` happens as one is shut."""

    def __init__(self) -> None:
        self.shut_ones: set[str] = set()
        self.meanwhile: Any = None

    def allowed(self, name: str) -> int | None:
        return 0 if name in self.shut_ones else None

    def shut(self, name: str, why: str = "") -> None:
        self.shut_ones.add(name)
        if self.meanwhile:
            self.meanwhile()

    def open(self, name: str) -> None:
        self.shut_ones.discard(name)


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def halting_of(control: DecisionCache, gates: Gates) -> HaltGuard:
    @contextmanager
    def producer() -> Any:
        yield SimpleNamespace(channel=SimpleNamespace(gates=gates))

    app: Any = SimpleNamespace(producer_or_acquire=producer, tasks={})
    return HaltGuard(app, Batch("charge", "orders", 0, (), group="bridge"), control)


def test_a_delivery_of_a_halted_topic_does_not_run_and_its_gate_is_shut_where_that_is_open(
    mirror: Mirror, halting_of: HaltGuard, gates: Gates
):
    halting_of.check()
    mirror.stands = HALT
    mirror.now += HOLDS
    with pytest.raises(TopicHalted, match="halted by ann: the bank is closed"):
        halting_of.check()
    assert gates.shut_ones == {"bridge:topic:orders"}


@pytest.mark.parametrize("error", [OSError("no route"), ResponseError("OOM command not allowed")])
def test_a_delivery_of_a_halted_topic_does_not_run_though_the_broker_does_not_answer(
    mirror: Mirror, halting_of: HaltGuard, gates: Gates, error: Exception
):
    def fail() -> None:
        raise error

    mirror.stands, gates.meanwhile = HALT, fail
    with pytest.raises(TopicHalted):
        halting_of.check()


def test_what_was_resumed_a_moment_ago_runs_though_it_was_last_known_as_halted(
    mirror: Mirror, control: DecisionCache, halting_of: HaltGuard, gates: Gates
):
    mirror.stands = HALT
    assert control.halt("orders")
    mirror.stands = RESUMED
    halting_of.check()
    assert gates.shut_ones == set()


def test_a_gate_that_is_shut_while_somebody_resumes_the_topic_is_opened_again(
    mirror: Mirror, halting_of: HaltGuard, gates: Gates
):
    mirror.stands = HALT
    gates.meanwhile = lambda: setattr(mirror, "stands", RESUMED)
    with pytest.raises(TopicHalted):
        halting_of.check()
    assert gates.shut_ones == set()


@pytest.fixture
def decisions(mirror: Mirror, gates: Gates, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is decided, with the gates that were shut at that moment."""
    made: list[Any] = []

    def decide(chosen: Any, into: Any, key: str, data: Any, by: str, why: str, before: Any) -> DecisionOutcome:
        made.append((key, data, why, set(gates.shut_ones)))
        mirror.stands = append_decision(key, before, make_decision_entry(data, by, 3.0, why))
        return DecisionOutcome(mirror.stands)

    monkeypatch.setattr(halt_gate, "make_decision", decide)
    monkeypatch.setattr(
        halt_gate,
        "read_standing_decisions",
        lambda settings, into: {} if mirror.stands is None else {KEY: mirror.stands},
    )
    return made


@pytest.mark.parametrize(
    ("error", "why"), [(StopConsuming("no keys"), "no keys"), (KeyError("bank"), "KeyError: 'bank'")]
)
def test_who_asks_to_stop_decides_first_and_shuts_the_gate_then(
    halting_of: HaltGuard,
    gates: Gates,
    decisions: list[Any],
    error: Exception,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(settings, "load", lambda app, environ: SimpleNamespace(of_group=lambda group: None))
    delivery = Delivery(Message("orders", 3, 7), "charge")
    halting_of.stop(delivery, Failure.from_error(error), error)
    ((key, data, told, shut),) = decisions
    assert (key, told, shut) == (KEY, why, set())
    assert (data["record"], data["handler"]) == ("orders-3-7", "charge")
    assert gates.shut_ones == {"bridge:topic:orders"}
    halting_of.stop(delivery, Failure.from_error(error), error)
    assert len(decisions) == 1, "a topic that is halted is not halted once more"


@pytest.mark.parametrize("found", [None, HALT], ids=["it has decided it", "it has found it halted"])
def test_who_asked_to_stop_lets_nothing_run_though_redis_is_wiped_before_it_is_asked(
    mirror: Mirror,
    halting_of: HaltGuard,
    decisions: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    found: GroupDecision | None,
):
    monkeypatch.setattr(settings, "load", lambda app, environ: SimpleNamespace(of_group=lambda group: None))
    halting_of.check()
    mirror.stands, error = found, StopConsuming("no keys")
    halting_of.stop(Delivery(Message("orders", 3, 7), "charge"), Failure.from_error(error), error)
    mirror.stands = None
    with pytest.raises(TopicHalted):
        halting_of.check()
    mirror.told, mirror.whole, mirror.now = "a bridge has looked, and it was resumed", True, HOLDS
    halting_of.check()


def test_what_nobody_could_note_halts_nothing(
    halting_of: HaltGuard, gates: Gates, decisions: list[Any], monkeypatch: pytest.MonkeyPatch
):
    def refuse(*given: Any) -> DecisionOutcome:
        raise NotDecided("neither")

    monkeypatch.setattr(halt_gate, "make_decision", refuse)
    monkeypatch.setattr(settings, "load", lambda app, environ: SimpleNamespace(of_group=lambda group: None))
    with pytest.raises(NotDecided):
        halting_of.stop(Delivery(Message("orders", 0, 1), "charge"), Failure.from_error(KeyError()), KeyError())
    assert gates.shut_ones == set()


def halt_of(scope: HaltScope) -> GroupDecision:
    return append_decision(scope.decision_key, None, make_decision_entry({"since": 1.0}, "ann", 1.0, "it books twice"))


def delivery(key: bytes | None) -> Delivery:
    return Delivery(Message("orders", 0, 1, key=key), "charge")


def test_a_halted_handler_does_not_run_and_its_own_gate_is_shut(mirror: Mirror, halting_of: HaltGuard, gates: Gates):
    mirror.stands = halt_of(CHARGE)
    with pytest.raises(TopicHalted, match="'charge' of topic 'orders' is halted by ann: it books twice") as caught:
        halting_of.check()
    assert gates.shut_ones == {caught.value.gate} == {"bridge:held:orders:charge"}
    mirror.stands = append_decision(CHARGE.decision_key, mirror.stands, make_decision_entry(None, "bob", 2.0, ""))
    halting_of.check()


@pytest.mark.parametrize("scope", [HaltScope("orders", "notify"), HaltScope("mail", "charge"), KEY_OF_CHARGE])
def test_other_handlers_topics_and_keys_go_on(mirror: Mirror, halting_of: HaltGuard, gates: Gates, scope: HaltScope):
    mirror.stands = halt_of(scope)
    halting_of.check()
    assert [halting_of.find_key_gate(delivery(key)) for key in (None, b"", b"47", b"4711")] == [""] * 4
    assert gates.shut_ones == set()


def test_the_deliveries_of_a_halted_key_wait_at_its_gate_and_redis_is_asked_once_for_them(
    mirror: Mirror, halting_of: HaltGuard, gates: Gates
):
    mirror.stands = halt_of(KEY_OF_CHARGE)
    halting_of.check()
    assert {halting_of.find_key_gate(delivery(b"47:11")) for _ in range(9)} == {"bridge:held:orders:charge:47%3A11"}
    assert gates.shut_ones == {"bridge:held:orders:charge:47%3A11"}
    assert mirror.versions < 9


def test_a_key_that_was_resumed_a_moment_ago_runs(mirror: Mirror, halting_of: HaltGuard, gates: Gates):
    mirror.stands = halt_of(KEY_OF_CHARGE)
    halting_of.check()
    mirror.stands = append_decision(mirror.stands.key, mirror.stands, make_decision_entry(None, "bob", 2.0, ""))
    assert halting_of.find_key_gate(delivery(b"47:11")) == ""
    assert gates.shut_ones == set()


def test_a_gate_that_is_shut_while_somebody_resumes_the_handler_is_opened_again(
    mirror: Mirror, halting_of: HaltGuard, gates: Gates
):
    mirror.stands = halted = halt_of(CHARGE)
    resumed = append_decision(halted.key, halted, make_decision_entry(None, "bob", 2.0, ""))
    gates.meanwhile = lambda: setattr(mirror, "stands", resumed)
    with pytest.raises(TopicHalted):
        halting_of.check()
    assert gates.shut_ones == set()


@pytest.fixture
def renamed(halting_of: HaltGuard) -> HaltGuard:
    """The guard of a handler that is called bill now, and was called charge."""
    bill = SimpleNamespace(name="bill", other_names=("charge",), source_topics=("orders",))
    app: Any = halting_of._app
    app.tasks = {"bill": bill, "charge": SimpleNamespace(name="charge", other_names=("bill",))}
    return halting_of


@pytest.mark.parametrize("carried_by", ["charge", "bill"])
def test_the_halt_of_a_handler_goes_on_though_the_handler_was_renamed(
    mirror: Mirror, renamed: HaltGuard, gates: Gates, carried_by: str
):
    renamed._task_name, mirror.stands = carried_by, halt_of(CHARGE)
    with pytest.raises(TopicHalted, match="'charge' of topic 'orders' is halted by ann") as caught:
        renamed.check()
    assert gates.shut_ones == {caught.value.gate} == {"bridge:held:orders:charge"}


def test_the_halt_of_a_key_goes_on_though_the_handler_was_renamed(mirror: Mirror, renamed: HaltGuard):
    mirror.stands = halt_of(KEY_OF_CHARGE)
    renamed.check()
    assert renamed.find_key_gate(delivery(b"47:11")) == "bridge:held:orders:charge:47%3A11"
    assert renamed.find_key_gate(delivery(b"4711")) == ""
