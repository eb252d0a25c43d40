"""Plain tasks."""

from shop.celery import app


@app.task
def send_report(day: str) -> None:
    """Send it."""
