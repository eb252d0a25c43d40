"""A policy is its options together: none that was set before is lost by who sets another, whatever is away then."""

from typing import Any

import pytest
from celery import Celery

from bridge.errors import NotDecided, PolicyRefused, UnknownHandler
from bridge.formats.group_decision import policy_key, read_option_values
from bridge.handler_routes import find_routes
from bridge.ledger.decision_store import look_up_decisions, make_decision
from bridge.operator_actions import handler_policy as commands
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks import Limit
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tests.decision_world import KEY, SETTINGS, World, agree, the_mirror

CHARGE = "charge"


def handle(order: Any) -> None: ...


def refund(order: Any) -> None: ...


class Desk:
    """Who changes the policy of a handler at a keyboard."""

    def __init__(self, redis_url: str) -> None:
        self.app = Celery("desk", set_as_current=False)
        self.app.conf.update(OWN_DEFAULTS)
        declare_handler(self.app, ["orders"], {"name": CHARGE, "max_retries": 1, "default_retry_delay": 0.2})(handle)
        self.routes = find_routes(self.app)[0]
        self.settings = Settings(FileSettings(), EnvironmentSettings(), redis_url, {})

    def put(self, *words: str) -> Any:
        return commands.set_policy(self.app, self.settings, self.routes, CHARGE, words, "the bank is down", "ann")

    def unset(self, *options: str) -> Any:
        return commands.unset_policy(self.app, self.settings, self.routes, CHARGE, options, "it is back", "ann")

    def shown(self) -> Any:
        return commands.read_policies(self.app, self.settings, self.routes)

    def history(self) -> Any:
        return commands.read_policy_history(self.settings, self.routes, CHARGE)


@pytest.fixture
def desk(redis_url: str) -> Desk:
    return Desk(redis_url)


def stands(world: World) -> dict[str, Any]:
    """What is changed in the end, wherever one looks."""
    world.settle()
    (found,) = world.mirror.read().in_force().values()
    assert found.key == policy_key(CHARGE)
    assert world.kafka.published(SETTINGS).standing[found.key].decision == found
    return read_option_values(found.data)


def look(world: World) -> None:
    for number in (0, 1):
        world.look(number)


def test_what_kafka_alone_has_is_not_lost_by_who_sets_something_else_while_it_is_away(broken: World, desk: Desk):
    desk.put("max_retries=5")
    broken.wipe()
    broken.kafka.up = False
    for act in (lambda: desk.put("give_up_after=60"), lambda: desk.unset("give_up_after"), desk.shown, desk.history):
        with pytest.raises(NotDecided, match=r"(is|are) not known.*Kafka does not answer\. Redis is new, or was wiped"):
            act()
    assert stands(broken) == {"max_retries": 5}


def test_all_is_taken_back_whatever_it_was_while_kafka_alone_knows(broken: World, desk: Desk):
    desk.put("max_retries=5")
    broken.wipe()
    broken.kafka.up = False
    assert desk.unset()["unpublished"] == "Kafka does not answer."
    assert stands(broken) == {}


def test_while_kafka_is_away_what_is_set_stands_beside_what_was_where_a_bridge_has_seen_that_redis_has_all(
    broken: World, desk: Desk
):
    desk.put("max_retries=5")
    broken.wipe()
    look(broken)
    broken.kafka.up = False
    desk.put("give_up_after=60")
    assert stands(broken) == {"max_retries": 5, "give_up_after": 60}


def test_what_redis_alone_has_is_not_lost_by_who_sets_something_else_while_it_is_away(broken: World, desk: Desk):
    look(broken)
    broken.kafka.up = False
    desk.put("max_retries=5")
    broken.kafka.up = True
    broken.mirror.up = False
    with the_mirror(broken), pytest.raises(NotDecided, match=r"(is|are) not known.*Redis does not answer"):
        desk.put("give_up_after=60")
    assert stands(broken) == {"max_retries": 5}


def test_what_redis_lost_is_looked_up_in_kafka_until_a_bridge_has_put_it_back(broken: World, desk: Desk):
    desk.put("max_retries=5")
    broken.wipe()
    assert look_up_decisions(SETTINGS, broken.mirror).keys() == {policy_key(CHARGE)}
    look(broken)
    broken.kafka.up = False
    assert look_up_decisions(SETTINGS, broken.mirror).keys() == {policy_key(CHARGE)}


def test_what_was_sent_and_not_answered_may_arrive_and_who_decided_is_told_so(broken: World):
    broken.mirror.up = False
    broken.kafka.slow = True
    with pytest.raises(NotDecided, match="may still arrive"):
        make_decision(SETTINGS, broken.mirror, KEY, {"on": 1}, "ann", "")
    broken.kafka.up = False
    with pytest.raises(NotDecided) as refused:
        make_decision(SETTINGS, broken.mirror, KEY, None, "ann", "")
    assert "may still arrive" not in str(refused.value)
    broken.settle()
    agree(broken, halts=True)


def test_the_numbers_of_a_limit_are_changed_by_its_name(
    broken: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Limit("bank", per_second=50, concurrency=20)
    declare_handler(desk.app, ["orders"], {"name": "refund", "limit": bank})(refund)
    desk.routes = find_routes(desk.app)[0]
    monkeypatch.setattr(f"{__name__}.CHARGE", "limit:bank")
    with pytest.raises(PolicyRefused, match="a limit has no option 'max_retries'"):
        desk.put("max_retries=3")
    with pytest.raises(PolicyRefused, match="burst takes a whole number from 1"):
        desk.put("burst=0")
    assert desk.put("per_second=20", "concurrency=none")["policy"] == {
        "per_second": 20,
        "burst": 20,
        "concurrency": None,
    }
    changed = desk.shown()["limit:bank"]["changed"]["per_second"]
    assert (changed["was"], changed["is"], changed["by"], changed["why"]) == (50, 20, "ann", "the bank is down")
    assert len(desk.history()) == 1
    assert desk.unset()["policy"] == {"per_second": 50, "burst": 50, "concurrency": 20}
    monkeypatch.setattr(f"{__name__}.CHARGE", "limit:bonk")
    with pytest.raises(UnknownHandler, match="did you mean 'limit:bank'"):
        desk.put("per_second=20")
