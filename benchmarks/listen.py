"""Somebody who listens to task events, and keeps their state in memory as Flower does."""

import os

from celery import Celery

if __name__ == "__main__":
    app = Celery("listen", broker=os.environ["CELERY_BROKER_URL"])
    state = app.events.State()
    with app.connection_for_read() as connection:
        app.events.Receiver(connection, handlers={"*": state.event}).capture(wakeup=True)
