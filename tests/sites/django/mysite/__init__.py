"""A Django project with a Celery app of its own; `celery -A mysite worker`, `bridge -A mysite`."""

from mysite.celery import app as celery_app

__all__ = ("celery_app",)
