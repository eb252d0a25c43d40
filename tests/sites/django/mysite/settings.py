"""Django's settings; those of Celery begin with CELERY_, and so do the bridge's."""

import os

SECRET_KEY = "of a test"
USE_TZ = True
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["TEST_DATABASE"]}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_RESULT_BACKEND = os.environ["CELERY_BROKER_URL"]
CELERY_KAFKA_TOPICS = {os.environ["TEST_TOPIC"]: {"commit": "completion"}}
