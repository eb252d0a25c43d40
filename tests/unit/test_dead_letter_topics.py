"""Where dead letters lie is asked of Kafka once for all topics."""

import pytest

from bridge.settings import Settings
from bridge.settings.values import EnvironmentSettings, FileSettings
from bridge.topics import dead_letters
from bridge.topics.extents import Extent


@pytest.mark.parametrize("pattern", ["{topic}.dlq", "all.dlq"])
def test_the_partitions_of_all_dead_letter_topics_are_asked_for_at_once(monkeypatch, pattern):
    asked: list[list[str]] = []

    def extents(_settings, topics):
        asked.append([*topics])
        return [Extent(topic, 0, 0, 5, None) for topic in asked[-1] if "mails" not in topic]

    monkeypatch.setattr(dead_letters, "extents", extents)
    settings = Settings(FileSettings(kafka_dead_letter_topic=pattern), EnvironmentSettings(), "memory://", {})
    found = dead_letters.where(settings, ["orders", "mails"])
    assert len(asked) == 1
    assert len(asked[0]) == len(set(asked[0]))
    assert [each.topic for each in found["orders"]] == [pattern.format(topic="orders")]
    assert len(found["mails"]) == ("{" not in pattern)
