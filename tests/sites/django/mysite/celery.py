"""The project's Celery app, as Django's and Celery's documentation has it, and one line more."""

import os

from celery import Celery

import tasks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")

app = Celery("mysite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(related_name="handlers")
tasks.use(app)
