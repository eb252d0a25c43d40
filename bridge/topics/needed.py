"""Which topics of ours the handlers need (pure)."""

from collections.abc import Iterable

from bridge.handlers import Routes
from bridge.settings import Settings
from bridge.topics import tiers
from bridge.topics.names import TopicNames
from bridge.topics.ours import Kind, Ours


def needed(settings: Settings, routes: Routes) -> list[Ours]:
    """What must lie beside the source topics from the start: for what waits long, for replays, for dead letters."""
    return [ours for topic in routes.topics for ours in beside(settings, topic, needed_tiers(settings, routes, topic))]


def needed_tiers(settings: Settings, routes: Routes, topic: str) -> list[int]:
    """The tiers of a topic that its handlers' own policies may use, ascending, in seconds."""
    file = settings.file
    asked = (
        tiers.needed(handler.retry_delays, handler.longest_delay, file.kafka_park_after, file.kafka_retry_tiers)
        for handler in routes.of(topic)
    )
    return sorted({delay for delays in asked for delay in delays})


def beside(settings: Settings, topic: str, delays: Iterable[int]) -> list[Ours]:
    """The topics of ours beside a source that has these tiers."""
    names = TopicNames.of(settings)
    return [
        *(retry(settings, topic, delay) for delay in delays),
        Ours(names.replay(topic), Kind.REPLAY, topic),
        Ours(names.dead_letters(topic), Kind.DEAD_LETTERS, topic),
    ]


def retry(settings: Settings, topic: str, delay: int) -> Ours:
    """One tier of a source topic."""
    return Ours(TopicNames.of(settings).retry(topic, delay), Kind.RETRY, topic, delay)
