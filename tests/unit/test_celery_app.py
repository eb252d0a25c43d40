"""The Celery app: the user's celeryconfig over our defaults."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery

from tasks.celery import make_app
from tasks.declaration.celery_defaults import OWN_DEFAULTS as DEFAULTS
from tasks.declaration.celery_defaults import QUORUM
from tasks.declaration.handler_declaration import declare_queue

Make = Callable[..., Celery]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Make the app with a celeryconfig of these lines and with these variables."""
    for name in ("CELERY_BROKER_URL", "HANDLERS", "BRIDGE_GROUP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Celery] = []

    def make(*lines: str, **environ: str) -> Celery:
        (tmp_path / "theirconfig.py").write_text("\n".join(lines))
        sys.modules.pop("theirconfig", None)
        for name, value in {"CELERY_CONFIG_MODULE": "theirconfig", **environ}.items():
            monkeypatch.setenv(name, value)
        made.append(make_app())
        made[-1].set_default()
        return made[-1]

    yield make
    for app in made:
        app.close()
    import tasks

    tasks.app.set_default()
    tasks.app.set_current()


def test_without_a_word_of_the_users_the_defaults_hold(make: Make):
    conf = make().conf
    assert {name: conf[name] for name in DEFAULTS} == DEFAULTS


def test_what_a_user_sets_goes_over_the_defaults(make: Make):
    conf = make("broker_url = 'redis://theirs/1'", "worker_prefetch_multiplier = 4", "task_acks_late = False").conf
    assert conf.broker_url == "redis://theirs/1"
    assert conf.worker_prefetch_multiplier == 4
    assert conf.task_acks_late is False
    assert conf.task_serializer == "json"


@pytest.mark.parametrize(
    ("environ", "queue"), [({}, "bridge"), ({"BRIDGE_GROUP": ""}, "bridge"), ({"BRIDGE_GROUP": "shop"}, "shop")]
)
def test_the_default_queue_is_called_like_the_group(make: Make, environ: dict[str, str], queue: str):
    app = make(**environ)
    assert list(app.amqp.queues.consume_from) == [queue]
    assert app.amqp.router.route({}, "any")["queue"].name == queue


def test_a_default_queue_of_the_users_is_used(make: Make):
    assert list(make("task_default_queue = 'theirs'").amqp.queues.consume_from) == ["theirs"]


def test_the_environment_goes_over_celeryconfig(make: Make):
    app = make("broker_url = 'redis://theirs/1'", "imports = ('theirs',)", CELERY_BROKER_URL="redis://env/2",
               HANDLERS="json, base64 ,")  # fmt: skip
    assert app.conf.broker_url == "redis://env/2"
    assert app.conf.imports == ("json", "base64")


def test_transport_options_are_merged_key_by_key(make: Make):
    options = make("broker_transport_options = {'visibility_timeout': 60, 'priority_steps': [0]}").conf
    assert options.broker_transport_options == {
        **DEFAULTS["broker_transport_options"],
        "visibility_timeout": 60,
        "priority_steps": [0],
    }


def test_the_imports_of_celeryconfig_hold_without_handlers(make: Make):
    assert make("imports = ('theirs',)").conf.imports == ("theirs",)


def test_quorum_queues_are_declared_so_that_retries_wait_in_rabbitmq_and_no_delivery_is_dropped(make: Make):
    app = make("task_default_queue_type = 'quorum'", "broker_url = 'amqp://'", BRIDGE_GROUP="shop")
    declare_queue(app, "shop.slow")
    for name, key in (("shop", "shop"), ("shop.slow", "shop%2Eslow")):
        queue = app.amqp.queues[name]
        assert (queue.exchange.name, queue.exchange.type, queue.routing_key) == (name, "topic", key)
        assert queue.queue_arguments == QUORUM


def test_queues_that_a_user_declares_stay_as_they_are(make: Make):
    lines = ("from kombu import Queue", "task_default_queue_type = 'quorum'", "task_queues = [Queue('theirs')]")
    assert make(*lines).amqp.queues["theirs"].queue_arguments is None
