"""`bridge topics --create` lists the topics as they are after it."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.inspection import topic_list
from bridge.kafka.managed_topic import ManagedTopic, TopicKind, TopicShape
from bridge.kafka.topic_admin import Cluster
from bridge.kafka.topic_survey import SurveyedTopic
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})
DLQ = ManagedTopic("orders.dlq", TopicKind.DEAD_LETTERS, "orders")


def topic_of(partitions: int) -> Any:
    return SimpleNamespace(error=None, partitions=dict.fromkeys(range(partitions), SimpleNamespace(replicas=[1])))


@pytest.mark.parametrize(("added", "listed", "surveys"), [({"orders.dlq": 6}, 6, 4), ({}, 4, 1)])
def test_added_partitions_are_waited_for_and_refused_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, added: dict[str, int], listed: int, surveys: int
):
    """A broker lists them some moments after its controller has added them."""
    counts = [4, 4, 4, 6]
    seen = iter([SurveyedTopic(DLQ, "needed", count) for count in counts])
    asked: list[TopicShape] = []

    def add_partitions(_: Any, small: list[ManagedTopic], sources: dict[str, TopicShape]) -> dict[str, int]:
        asked.extend(ours.shape(sources[ours.source]) for ours in small)
        return added

    cluster = Cluster("c", {"orders": topic_of(6), "orders.dlq": topic_of(4)})
    answers: dict[str, Any] = {
        "admin_client": None,
        "open_decisions": nullcontext(SimpleNamespace(standing=())),
        "find_changed_policies": {},
        "changed_handlers": (),
        "_others": frozenset(),
        "read_cluster": cluster,
        "create_topics": [],
        "_other_application": ((), ""),
        "_count_unsettled": {},
    }
    for name, answer in answers.items():
        monkeypatch.setattr(topic_list, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(topic_list, "add_partitions", add_partitions)
    monkeypatch.setattr(topic_list, "survey_topics", lambda *_: [next(seen)])
    routes: Any = SimpleNamespace(topics=["orders"])
    found = topic_list.list_topics(None, SETTINGS, routes, create=True)  # type: ignore[arg-type]
    assert asked == [TopicShape(6)]
    assert [each.partitions for each in found.found] == [listed]
    assert len(counts) - len([*seen]) == surveys
