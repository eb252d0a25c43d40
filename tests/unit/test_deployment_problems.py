"""Who else is in the group: another application is told from a deploy, and nothing of it is called left over."""

from dataclasses import replace
from typing import Any

import pytest

from bridge.jobs.deployment_problems import DEPLOY_LASTS, find_other_applications, is_stopped
from bridge.jobs.group_facts import GroupFacts, HandlerFacts


def facts(
    bridges: dict[str, list[str]], workers: dict[str, list[str]] | None = None, group: str = "bridge"
) -> GroupFacts:
    def states(members: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
        return {name: {"group": group, "handlers": handlers, "queues": []} for name, handlers in members.items()}

    here = [HandlerFacts("orders.charge", ("orders",), "bridge"), HandlerFacts("orders.notify", ("orders",), "bridge")]
    return GroupFacts(10.0, "bridge", here, bridges=states(bridges), workers=states(workers or {}))


def test_a_bridge_with_no_handler_of_this_application_is_another_one_and_told_with_its_workers():
    (problem,) = find_other_applications(
        facts({"here": ["orders.charge", "orders.notify"], "there": ["mail.send"]}, {"w": ["mail.send"]})
    ).values()
    assert "Another application uses the group 'bridge': bridge there, worker w with mail.send" in problem
    assert "its own BRIDGE_GROUP, and delete no topic" in problem


def test_a_deploy_and_workers_of_some_handlers_each_are_one_application():
    chain = {"old": ["orders.notify", "orders.old"], "older": ["orders.old", "orders.oldest"], "empty": []}
    assert find_other_applications(facts(chain, {"w": ["orders.oldest"], "lacks": ["mail.send"]})) == {}
    assert find_other_applications(facts({})) == {}


def test_workers_of_another_group_are_none_of_this_one():
    found = facts({"there": ["mail.send"]}, {"w": ["mail.send"]}, group="shop")
    (problem,) = find_other_applications(found).values()
    assert "worker w" not in problem


def bridge(handler: str, started: float, topic: str = "orders") -> dict[str, Any]:
    return {"handlers": [handler], "routes": {topic: [handler]}, "started": started}


@pytest.mark.parametrize(
    ("bridges", "is_other"),
    [
        ({"old": bridge("orders.bill", 0.0), "new": bridge("orders.charge", 1000.0)}, False),
        # The new side asks before it starts, as an init container does.
        ({"old": bridge("orders.bill", 0.0)}, False),
        ({"old": bridge("orders.bill", 0.0), "new": bridge("orders.charge", 1010.0 - DEPLOY_LASTS)}, True),
        ({"old": bridge("mails.send", 10.0, "mails"), "new": bridge("orders.charge", 1000.0)}, True),
    ],
)
def test_a_deploy_that_renames_the_only_handler_is_told_from_another_application(bridges: Any, is_other: bool):
    workers = {"w": {"group": "bridge", "handlers": bridges["old"]["handlers"], "queues": ["bridge"]}}
    found = replace(facts({}), now=1010.0, bridges=bridges, workers=workers)
    others = find_other_applications(found)
    assert bool(others) is is_other
    if is_other and bridges["old"]["started"]:
        assert "group 'bridge', since 1970-01-01" in next(iter(others.values()))


@pytest.mark.parametrize(
    ("change", "stopped"),
    [
        ({}, True),
        ({"workers": {"of another": {"handlers": [], "queues": ["shop"]}}}, True),
        ({"queues": {"bridge": 1}}, False),
        ({"retries": {"bridge": 1}}, False),
        ({"bridges": {"b": {"handlers": []}}}, False),
        ({"workers": {"w": {"handlers": [], "queues": ["bridge"]}}}, False),
        ({"lost": {"b": 900.0}}, False),
        ({"queues": None}, False),
        ({"bridges": None}, False),
    ],
)
def test_after_a_planned_stop_nothing_waits_and_nothing_runs(change: dict[str, Any], stopped: bool):
    assert is_stopped(replace(replace(facts({}), queues={"bridge": 0}), **change)) is stopped
