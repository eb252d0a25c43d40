"""Who else is in the group: another application is told from a deploy, and nothing of it is called left over."""

from typing import Any

from bridge.upkeep.facts import Facts, HandlerFacts
from bridge.upkeep.uncared import other_applications


def facts(bridges: dict[str, list[str]], workers: dict[str, list[str]] | None = None, group: str = "bridge") -> Facts:
    def states(members: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
        return {name: {"group": group, "handlers": handlers, "queues": []} for name, handlers in members.items()}

    here = [HandlerFacts("orders.charge", ("orders",), "bridge"), HandlerFacts("orders.notify", ("orders",), "bridge")]
    return Facts(10.0, "bridge", here, bridges=states(bridges), workers=states(workers or {}))


def test_a_bridge_with_no_handler_of_this_application_is_another_one_and_told_with_its_workers():
    (problem,) = other_applications(
        facts({"here": ["orders.charge", "orders.notify"], "there": ["mail.send"]}, {"w": ["mail.send"]})
    ).values()
    assert "Another application uses the group 'bridge': bridge there, worker w with mail.send" in problem
    assert "its own BRIDGE_GROUP, and delete no topic" in problem


def test_a_deploy_and_workers_of_some_handlers_each_are_one_application():
    chain = {"old": ["orders.notify", "orders.old"], "older": ["orders.old", "orders.oldest"], "empty": []}
    assert other_applications(facts(chain, {"w": ["orders.oldest"], "lacks": ["mail.send"]})) == {}
    assert other_applications(facts({})) == {}


def test_workers_of_another_group_are_none_of_this_one():
    found = facts({"there": ["mail.send"]}, {"w": ["mail.send"]}, group="shop")
    (problem,) = other_applications(found).values()
    assert "worker w" not in problem
