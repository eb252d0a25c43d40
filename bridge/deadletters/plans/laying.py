"""What a plan sends back to topics that have an order gets its lanes (bridge.deadletters.plan.lanes)."""

from bridge.deadletters.plan.lanes import Course, course_of, ordered
from bridge.deadletters.store import lanes
from bridge.deadletters.store.database import Connection
from bridge.settings import Settings


def lay(connection: Connection, plan_id: int, settings: Settings) -> None:
    """Lay the lanes of a plan that is begun, or gone on with: then they are as the topics are ordered now."""
    topics = ordered(settings)
    if not topics:
        return
    found: dict[Course, list[int]] = {}
    for kind, group, topic, handler in lanes.courses(connection, topics):
        if (course := course_of(settings, group, topic, handler)) is not None:
            found.setdefault(course, []).append(kind)
    lanes.lay(connection, plan_id, found)
