"""The handlers of parking.py in a process that does not hear of Kafka's first acknowledgement of each kind."""

from typing import Any

from bridge.errors import PublishFailed
from bridge.kafka.publisher import Publisher
from tests.handlers.parking import charge

__all__ = ["charge"]

_park, _dead_letter = Publisher.park, Publisher.dead_letter
_heard: set[str] = set()


def _parked(self: Publisher, *args: Any) -> Any:
    found = _park(self, *args)
    if "parked" not in _heard:
        _heard.add("parked")
        return [PublishFailed("no answer")] * len(found)
    return found


def _died(self: Publisher, *args: Any) -> None:
    _dead_letter(self, *args)
    if "dead" not in _heard:
        _heard.add("dead")
        raise PublishFailed("no answer")


Publisher.park = _parked  # type: ignore[method-assign, assignment]
Publisher.dead_letter = _died  # type: ignore[method-assign, assignment]
