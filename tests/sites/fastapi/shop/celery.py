"""The service's Celery app; `celery -A shop worker`, `bridge -A shop`."""

from celery import Celery

import tasks

app = Celery("shop", include=["shop.handlers", "shop.jobs"])
tasks.use(app)
