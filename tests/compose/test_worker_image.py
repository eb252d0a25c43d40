"""The project's image as a worker under pytest-celery, against a broker container."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_celery import CeleryTestSetup, CeleryWorkerContainer, RedisTestBroker
from pytest_docker_tools import container, fxtr

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.celery_message import OutgoingBatch
from bridge.formats.celery_header import to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.delivery_identity import label_records
from tasks.celery import app

# pytest-celery leaves its client of the broker open.
unclosed = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.compose, unclosed]
HANDLER = "examples.orders.handlers.charge"
ORDER = b'{"id": 1, "customer": "ann@example.com", "amount": 9.5, "currency": "EUR"}'


class ProjectWorker(CeleryWorkerContainer):  # type: ignore[misc]
    """The image as it is: its own app and its own settings, no volume laid over them."""

    @classmethod
    def command(cls, *args: str, **_: Any) -> list[str]:
        return ["celery", "-A", "tasks", "worker", "-l", "INFO", "-c", "1", "-n", f"{cls.worker_name()}@%h", *args]

    @classmethod
    def initial_env(cls, celery_worker_cluster_config: dict[str, Any], initial: Any = None) -> dict[str, str]:
        return {
            "CELERY_BROKER_URL": celery_worker_cluster_config["celery_broker_cluster_config"]["urls"][0],
            "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
            "HANDLERS": "examples.orders.handlers",
        }


default_worker_container = container(
    image="{image}",
    environment=fxtr("default_worker_env"),
    network="{default_pytest_celery_network.name}",
    wrapper_class=ProjectWorker,
    timeout=60,
    command=fxtr("default_worker_command"),
)


@pytest.fixture
def default_worker_container_cls() -> type[CeleryWorkerContainer]:
    return ProjectWorker


@pytest.fixture
def celery_broker(celery_redis_broker: RedisTestBroker) -> RedisTestBroker:
    return celery_redis_broker


@pytest.fixture
def celery_backend_cluster() -> None:
    """The project keeps no results."""


@pytest.fixture
def handoff(celery_setup: CeleryTestSetup) -> Iterator[CeleryBroker]:
    """The bridge's own way into that broker."""
    app.loader.import_task_module("examples.orders.handlers")
    app.conf.update(broker_write_url=celery_setup.broker.config()["host_url"])
    handoff = CeleryBroker(app)
    yield handoff
    handoff.close()


def outgoing(offset: int) -> OutgoingBatch:
    message = Message("orders", 0, offset, b"customer-1", ORDER, (), 1_700_000_000_000)
    batch = Batch(HANDLER, message.topic, message.partition, (Delivery(message, HANDLER),))
    return OutgoingBatch(
        HANDLER, batch.task_id, label_records(message.topic, message.partition, [offset]), to_header(batch)
    )


def test_a_delivery_is_handled_by_the_image(celery_setup, handoff):
    handoff.publish([outgoing(0)])
    celery_setup.worker.assert_log_exists(f"{HANDLER}[orders-0-0:{HANDLER}] succeeded", timeout=30)


def test_what_was_handed_off_while_the_worker_was_dead_is_handled_when_it_is_back(celery_setup, handoff):
    celery_setup.worker.kill()
    handoff.publish([outgoing(number) for number in range(1, 6)])
    celery_setup.worker.restart()
    for number in range(1, 6):
        celery_setup.worker.assert_log_exists(f"[orders-0-{number}:{HANDLER}] succeeded", timeout=30)
