"""A handler's policy is changed at run time: in force in running workers, kept through restarts and a wiped Redis."""

import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
import redis
from celery import Celery

from bridge.errors import PolicyRefused, UnknownHandler
from bridge.handler_routes import Routes, find_routes
from bridge.operator_actions import handler_policy as commands
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.delivery_checks import choose, command, json_of
from tests.processes import Stack, eventually

Here = tuple[Celery, Settings, Routes]
CHARGE, MAIL = "tests.handlers.judged.charge", "tests.handlers.judged.mail"
WHY = "the bank is down"


@pytest.fixture
def shop(stack: Stack) -> Stack:
    stack.environ["HANDLERS"] = "tests.handlers.judged"
    stack.make_topics("orders", "mails")
    return stack


@pytest.fixture
def here(shop: Stack) -> Here:
    """The same handlers' names and options, in this process: a command of its own takes seconds to start."""
    forever = {"max_retries": None, "default_retry_delay": 0.2}
    return declared(shop, {CHARGE: {"max_retries": 1, "default_retry_delay": 0.2}, MAIL: forever})


def declared(shop: Stack, options: dict[str, dict[str, Any]]) -> Here:
    app = Celery("judged", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)
    for name, said in options.items():
        topic, function = ("orders", _charge) if name == CHARGE else ("mails", _mail)
        declare_handler(app, [shop.topic(topic)], {"name": name, **said})(function)
    made = EnvironmentSettings(BRIDGE_GROUP=shop.environ["BRIDGE_GROUP"])
    return app, Settings(FileSettings(), made, shop.broker, {"bootstrap.servers": shop.kafka}), find_routes(app)[0]


def _charge(order: Any) -> None: ...
def _mail(order: Any) -> None: ...


def put(here: Here, handler: str, *words: str, why: str = WHY, by: str = "ann@desk") -> dict[str, Any]:
    app, settings, routes = here
    return commands.set_policy(app, settings, routes, handler, words, why, by)


def unset(here: Here, handler: str, *options: str) -> dict[str, Any]:
    app, settings, routes = here
    return commands.unset_policy(app, settings, routes, handler, options, "the bank is back", "bob@desk")


def reasons(stack: Stack, topic: str, count: int) -> Sequence[str]:
    return [letter.ours["reason"] for letter in stack.dead(topic, count, 20)]


def test_a_delivery_that_waits_is_judged_by_the_policy_that_is_in_force_when_it_fails_next(shop: Stack, here: Any):
    shop.bridge()
    worker = shop.worker()
    (endless,) = shop.produce("mails", {})
    eventually(lambda: len(shop.runs(coordinates=endless)) > 3, 20, "it is retried for ever")
    put(here, MAIL, "max_retries=2")
    assert reasons(shop, "mails", 1) == ["exhausted"]
    worker.says(f"{MAIL}: its policy is not its code's: max_retries=2, changed by ann@desk at ")

    put(here, CHARGE, "max_retries=50")
    (patient,) = shop.produce("orders", {"fails": 4})
    eventually(lambda: patient in shop.done("charge"), 20)
    assert shop.dead_letters("orders") == []
    (endless,) = shop.produce("orders", {"fails": 99})
    eventually(lambda: len(shop.runs(coordinates=endless)) > 3, 20)
    unset(here, CHARGE)
    assert reasons(shop, "orders", 1) == ["exhausted"]
    assert len(shop.runs(coordinates=endless)) < 50


@pytest.mark.slow
def test_an_error_that_is_named_is_buried_at_once(shop: Stack):
    shop.bridge()
    shop.worker()
    command(shop, "policy", "set", CHARGE, "dead_letter_for=tests.handlers.judged.CardDeclined", "--why", WHY)
    (declined,) = shop.produce("orders", {"fails": 9, "declined": True})
    assert reasons(shop, "orders", 1) == ["permanent"]
    assert len(shop.runs(coordinates=declined)) == 1


@pytest.mark.slow
def test_what_was_changed_outlives_a_restart_of_everything_and_a_wiped_redis(shop: Stack, here: Any):
    bridge, worker = shop.bridge(), shop.worker()
    put(here, CHARGE, "max_retries=4")
    with redis.Redis.from_url(shop.broker) as client:
        worker.kill()
        bridge.kill()
        client.flushdb()
    shop.bridge()
    shop.worker()
    (patient,) = shop.produce("orders", {"fails": 4})
    eventually(lambda: patient in shop.done("charge"), 20)


@pytest.mark.slow
def test_who_looks_is_told_that_a_policy_is_not_the_codes(shop: Stack, here: Here):
    bridge = shop.bridge()
    assert bridge.metric("bridge_policy_changed", handler=CHARGE) == 0
    put(here, CHARGE, "max_retries=4")
    eventually(lambda: bridge.metric("bridge_policy_changed", handler=CHARGE) == 1, 10)
    assert bridge.metric("bridge_policy_changed", handler=MAIL) == 0
    (order,) = shop.produce("orders", {"fails": 0})
    (delivery,) = json_of(shop, "find", order)["deliveries"]
    assert delivery["policy"].startswith("changed by ann@desk at 20")
    found = json_of(shop, "status")
    assert found["policies"] == {CHARGE: f"{delivery['policy']}: max_retries=4"}
    assert not any("policy" in problem for problem in found["problems"])
    unset(here, CHARGE)
    eventually(lambda: bridge.metric("bridge_policy_changed", handler=CHARGE) == 0, 10)


def test_the_commands_show_change_and_tell_of_policies(shop: Stack):
    changed = json_of(
        shop, "policy", "set", CHARGE, "max_retries=20", "give_up_after=60", "--why", WHY, "--by", "ann@desk"
    )
    assert changed["fault"] is None
    shown = json_of(shop, "policy")
    assert shown.keys() == {CHARGE, MAIL}
    assert shown[MAIL]["changed"] == {}
    assert shown[CHARGE]["policy"]["max_retries"] == 20
    retries = shown[CHARGE]["changed"]["max_retries"]
    assert {name: retries[name] for name in ("was", "is", "by", "why")} == {
        "was": 1,
        "is": 20,
        "by": "ann@desk",
        "why": WHY,
    }
    assert retries["at"].startswith("20")
    # Dead letters are judged by what is in force.
    shop.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{shop.folder}/letters.db"
    command(shop, "deadletters", "migrate")
    tried = json_of(shop, "deadletters", "simulate", CHARGE, "give_up_after=30")
    assert tried["in_force"] == {"max_retries": 20, "give_up_after": 60}
    assert (tried["policy"]["max_retries"], tried["changed"]) == (20, {"give_up_after": 30})
    assert json_of(shop, "policy", "unset", CHARGE, "max_retries", "--by", "bob@desk")["changed"].keys() == {
        "give_up_after"
    }
    first, second = command(shop, "policy", "history", CHARGE).splitlines()
    assert first.endswith("  unset max_retries  by bob@desk: ")
    assert second == f"{retries['at']}  max_retries=20 give_up_after=60  by ann@desk: {WHY}"


@pytest.mark.slow
def test_a_policy_that_waits_longer_finds_its_retry_topics_made(shop: Stack, here: Any):
    found = put(here, CHARGE, "retry_backoff=true", "retry_backoff_max=600", "max_retries=20")
    assert found["tiers"] == {}
    assert shop.has_topic("orders.retry.10m")
    assert not shop.has_topic("orders.retry.30m")
    put(here, MAIL, "retry_delays=90,4000")
    assert shop.has_topic("mails.retry.90s")
    assert shop.has_topic("mails.retry.4000s")


@pytest.mark.slow
def test_a_running_bridge_makes_what_a_changed_policy_needs_and_who_changed_it_could_not_make(
    shop: Stack, here: Any, monkeypatch: pytest.MonkeyPatch
):
    bridge = shop.bridge()
    monkeypatch.setattr(commands, "_tiers", lambda *_: {})
    put(here, MAIL, "retry_delays=90,4000")
    assert not shop.has_topic("mails.retry.90s")
    eventually(lambda: shop.has_topic("mails.retry.90s") and shop.has_topic("mails.retry.4000s"), 15)
    # And it hands off what is parked there.
    bridge.says(shop.topic("mails.retry.4000s"), 20)


@pytest.mark.slow
def test_check_lists_a_retry_topic_that_a_changed_policy_needs_and_that_nobody_may_make(
    shop: Stack, here: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(commands, "_tiers", lambda *_: {})
    put(here, MAIL, "retry_delays=90")
    choose(shop, {}, kafka_create_topics=False)
    shop.environ["HANDLERS"] = "tests.handlers.judged"
    assert f"topic '{shop.topic('mails.retry.90s')}' does not exist" in command(shop, "check", code=None)


REFUSED: Final = (
    ("charge", ["max_retries=1"], UnknownHandler, f"no handler has the name 'charge': did you mean '{CHARGE}'?"),
    ("nobody", ["max_retries=1"], UnknownHandler, f"handlers: {CHARGE}, {MAIL}."),
    (CHARGE, ["max_retrys=1"], PolicyRefused, "is 'max_retries' meant?"),
    (CHARGE, ["max_retries=some"], PolicyRefused, "takes a whole number, or none; it was given 'some'"),
    (CHARGE, ["max_retries=-1"], PolicyRefused, f"{CHARGE}: max_retries takes numbers from 0 on; it was given -1."),
    (CHARGE, ["retry_backoff_max=60"], PolicyRefused, "set retry_backoff=true as well"),
)


def test_what_cannot_be_set_is_refused_with_what_is_meant_and_nothing_changes(here: Here):
    for handler, words, refused, meant in REFUSED:
        with pytest.raises(refused, match=re.escape(meant)):
            put(here, handler, *words)
    app, settings, routes = here
    assert all(each["changed"] == {} for each in commands.read_policies(app, settings, routes).values())


def test_what_is_left_after_an_unset_must_hold_by_itself(here):
    put(here, CHARGE, "retry_backoff=true", "retry_backoff_max=60")
    with pytest.raises(PolicyRefused, match=r"the remaining changes could not be in force: .* Unset them as well\."):
        unset(here, CHARGE, "retry_backoff")
    with pytest.raises(PolicyRefused, match="is 'retry_backoff' meant"):
        unset(here, CHARGE, "retry_backof")
    assert unset(here, CHARGE)["changed"] == {}
    assert unset(here, CHARGE) == unset(here, CHARGE, "max_retries")
    assert [bool(step["set"]) for step in commands.read_policy_history(here[1], here[2], CHARGE)] == [False, True]


def test_without_a_redis_no_worker_would_hear_of_a_change(here):
    app, settings, routes = here
    nowhere = Settings(settings.file, settings.environment, "amqp://localhost", settings.kafka)
    with pytest.raises(PolicyRefused, match="set LEDGER_URL"):
        put((app, nowhere, routes), CHARGE, "max_retries=1")


@pytest.mark.slow
def test_what_a_new_version_cannot_take_is_told_everywhere_and_its_codes_policy_is_in_force(shop: Stack, here: Any):
    put(here, CHARGE, "max_retries=20")
    put(here, MAIL, "max_retries=2")
    shop.environ |= {"TEST_DELAYS": "1", "TEST_RENAMED": "1"}
    shop.bridge()
    worker = shop.worker()
    shop.produce("orders", {"fails": 9})
    assert reasons(shop, "orders", 1) == ["exhausted"]
    assert len(shop.runs("charge")) == 3
    worker.says(f"{CHARGE}: what was changed of its policy is not in force, its code's policy is: ")
    new = declared(shop, {CHARGE: {"retry_delays": (0.2, 0.2)}})
    shown = commands.read_policies(*new)
    assert "max_retries has no effect beside retry_delays" in shown[CHARGE]["fault"]
    assert shown[CHARGE]["policy"]["max_retries"] == 2
    assert "no handler or limit has this name" in shown[MAIL]["fault"]
    checked = command(shop, "check")
    problems = json_of(shop, "status")["problems"]
    for handler in (CHARGE, MAIL):
        said = f"The policy of {handler} was changed by ann@desk at "
        assert said in checked
        assert any(problem.startswith(said) for problem in problems)
    assert unset(new, MAIL)["changed"] == {}
    assert commands.read_policies(*new).keys() == {CHARGE}
