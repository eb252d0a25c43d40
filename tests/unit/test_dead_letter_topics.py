"""Where dead letters lie is asked of Kafka once for all topics."""

import pytest

from bridge.kafka import dead_letter_reader
from bridge.kafka.partition_offsets import Extent
from bridge.settings import Settings
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings


@pytest.mark.parametrize("pattern", ["{topic}.dlq", "all.dlq"])
def test_the_partitions_of_all_dead_letter_topics_are_asked_for_at_once(monkeypatch, pattern):
    asked: list[list[str]] = []

    def extents(_settings, topics):
        asked.append([*topics])
        return [Extent(topic, 0, 0, 5, None) for topic in asked[-1] if "mails" not in topic]

    monkeypatch.setattr(dead_letter_reader, "read_extents", extents)
    settings = Settings(FileSettings(kafka_dead_letter_topic=pattern), EnvironmentSettings(), "memory://", {})
    found = dead_letter_reader.find_dead_letter_partitions(settings, ["orders", "mails"])
    assert len(asked) == 1
    assert len(asked[0]) == len(set(asked[0]))
    assert [each.topic for each in found["orders"]] == [pattern.format(topic="orders")]
    assert len(found["mails"]) == ("{" not in pattern)
