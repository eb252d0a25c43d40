"""What each kind of plan does, with what it needs for that."""

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery

from bridge.deadletters.actions.action import Action
from bridge.deadletters.actions.discarding import Archiving, Discarding
from bridge.deadletters.actions.ends import Ends
from bridge.deadletters.actions.sending import Sending, target_of
from bridge.deadletters.copying import copying
from bridge.deadletters.fates import Fates
from bridge.deadletters.outcomes.redriven import Ending
from bridge.deadletters.plan.plan import Plan, What
from bridge.deadletters.plans.known import known_handlers
from bridge.deadletters.redrive.ranges import looking
from bridge.deadletters.redrive.redriving import Redriving
from bridge.deadletters.store import items, weighing
from bridge.deadletters.store.database import Database
from bridge.handlers import Routes
from bridge.settings import Settings
from bridge.topics.picking import Picking


@contextmanager
def action(
    app: Celery, settings: Settings, routes: Routes, database: Database, plan: Plan, fates: Fates
) -> Iterator[Action]:
    """What a plan does.

    Raises:
        KafkaUnavailable: Kafka did not answer.
        CopyRefused: copies have no topic (any more), or this process does not know how to get into their Kafka.
    """
    if plan.what is What.ARCHIVE:
        yield Archiving(plan)
        return
    if plan.what is What.COPY:
        copying.there(settings, copying.target_of(plan), plan.options.target["topic"])
        yield copying.Copying(settings, database, plan)
        return
    if plan.what is What.DISCARD:
        yield Discarding(database, plan, fates)
        return
    ends = Ends(settings)
    with database.reading() as connection:
        heaps, last_wave = weighing.heaps(connection, plan.id), items.last_wave(connection, plan.id)
    ends.prepare((target_of(settings, heap.group, heap.topic, ours=heap.is_ours), heap.topic) for heap in heaps)
    letters = Sending(settings, database, plan, last_wave, ends, fates, known_handlers(app, settings, routes))
    if plan.what is What.REPLAY:
        yield letters
        return
    topic = str(plan.asked["topic"])
    ends.prepare([(target_of(settings, settings.group, topic, ours=True), topic)])
    Ending(settings, database, fates).enter(plan)
    with looking(settings, topic) as look, Picking(settings, topic) as picking:
        yield Redriving(settings, plan, ends, letters, fates, picking, look.logs)
