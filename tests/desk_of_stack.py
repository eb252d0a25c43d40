"""The desk of a stack, in the test's own process, and dead letters recorded as the recorder records them."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from celery import Celery

from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_parser import parse_letter
from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings, TopicSettings
from tests.processes import Process, Stack, eventually

#: Which topic a handler of tests/handlers/fates.py has, where that has not its name.
OF = {"odd_too": "odd", **{f"tests.handlers.fates.{name}": "steps" for name in ("first", "second", "third")}}


@contextmanager
def desk(stack: Stack, *handlers: str, **topics: Mapping[str, object]) -> Iterator[DeadLetterService]:
    """The desk of a stack, with these handlers of tests/handlers/fates.py.

    Parameters:
        topics: `kafka_topics`, as the stack has them (tests.delivery_checks.choose).
    """
    url = stack.environ.setdefault("DEADLETTERS_DATABASE_URL", f"sqlite:///{stack.folder}/letters.db")
    made = EnvironmentSettings(BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"], DEADLETTERS_DATABASE_URL=url)
    chosen = {stack.topic(name): TopicSettings.model_validate(each) for name, each in topics.items()}
    routes = Routes({name: Handler(name, (stack.topic(OF.get(name, name)),), "q", 1, 0.0) for name in handlers})
    transport = "lossless.transport:Transport"
    with Celery("desk", broker=stack.broker, broker_transport=transport, set_as_current=False) as app:
        settings = Settings(FileSettings(kafka_topics=chosen), made, stack.broker, {"bootstrap.servers": stack.kafka})
        with DeadLetterService.opened(app, settings, routes) as opened:
            yield opened


def record(stack: Stack, here: DeadLetterService, topic: str, count: int) -> None:
    """Record the dead letters of a topic, once there are so many."""
    found = eventually(
        lambda: some if len(some := stack.records(f"{topic}.dlq")) >= count else None, 40, f"{count} letters of {topic}"
    )
    now = int(time.time() * 1000)
    with here.database.writing() as connection:
        letters = [parse_letter(each, "", now) for each in found]
        LetterWriter(connection, IdCache(), now, here.settings.file.kafka_deadletters_largest_value).record(letters)


def recorder(stack: Stack, *words: str) -> Process:
    """`python -m bridge deadletters record`."""
    stack.environ.setdefault("DEADLETTERS_DATABASE_URL", f"sqlite:///{stack.folder}/letters.db")
    started: Process = stack.start("recorder", sys.executable, "-m", "bridge", "deadletters", "record", *words)
    return started


def replay(here: DeadLetterService, asked: LetterFilter | None = None, **options: object) -> BulkPlan:
    """A plan to replay what a filter finds, made."""
    return here.plans.make(PlanKind.REPLAY, asked or LetterFilter(), PlanOptions(**options), "ann", "")  # type: ignore[arg-type]
