"""A worker refuses to start with settings by which burials would get lost."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, Task

from lossless.worker.consumer import find_settings_fault


class Lossless(Task):  # type: ignore[type-arg]
    Request = "lossless.worker.request:Request"
    acks_late = True


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery(broker="memory://", set_as_current=False) as app:
        app.conf.burial_task = "shop.bury"
        yield app


def bury(app: Any, base: Any, **options: Any) -> None:
    @app.task(name="shop.bury", base=base, shared=False, lazy=False, **options)
    def task(burial: Any) -> None: ...


def test_a_burial_task_that_would_be_done_again_is_right(app: Celery) -> None:
    bury(app, Lossless)
    assert find_settings_fault(app) is None


def test_a_burial_task_that_is_not_registered_is_named(app: Celery) -> None:
    assert "'shop.bury' (setting burial_task) is not registered" in str(find_settings_fault(app))


@pytest.mark.parametrize(("base", "acks_late"), [(Task, True), (Lossless, False)])
def test_a_burial_task_whose_burials_would_be_lost_with_a_process_is_refused(
    app: Celery, base: Any, acks_late: bool
) -> None:
    bury(app, base, acks_late=acks_late)
    assert "needs acks_late and the Request" in str(find_settings_fault(app))


def test_burials_must_be_accepted(app: Celery) -> None:
    bury(app, Lossless)
    app.conf.accept_content = ["pickle"]
    assert "accept_content must include json" in str(find_settings_fault(app))
    app.conf.accept_content = ["application/json"]
    assert find_settings_fault(app) is None
