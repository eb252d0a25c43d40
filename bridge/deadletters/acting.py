"""What each kind of plan does, with what it needs for that."""

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery

from bridge.deadletters.action import Action
from bridge.deadletters.discarding import Archiving, Discarding
from bridge.deadletters.ends import Ends
from bridge.deadletters.fates import Fates
from bridge.deadletters.known import known_handlers
from bridge.deadletters.plan import Plan, What
from bridge.deadletters.sending import Sending, target_of
from bridge.deadletters.store import weighing
from bridge.deadletters.store.database import Database
from bridge.errors import PlanRefused
from bridge.handlers import Routes
from bridge.settings import Settings


@contextmanager
def action(app: Celery, settings: Settings, routes: Routes, database: Database, plan: Plan) -> Iterator[Action]:
    """What a plan does.

    Raises:
        KafkaUnavailable: Kafka did not answer.
        PlanRefused: this version has no such plans.
    """
    if plan.what is What.ARCHIVE:
        yield Archiving(plan)
        return
    with Fates.opened(settings) as fates:
        if plan.what is What.DISCARD:
            yield Discarding(database, plan, fates)
        elif plan.what is What.REPLAY:
            ends = Ends(settings)
            with database.reading() as connection:
                heaps = weighing.heaps(connection, plan.id)
            ends.prepare((target_of(settings, heap.group, heap.topic, ours=heap.is_ours), heap.topic) for heap in heaps)
            yield Sending(settings, database, plan, ends, fates, known_handlers(app, settings, routes))
        else:
            raise PlanRefused(f"Plan {plan.id} is to {plan.what}: this version does not do that.")
