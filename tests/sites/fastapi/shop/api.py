"""The API: what it sends to Celery runs in the same workers."""

from fastapi import FastAPI

from shop.handlers import charge
from shop.jobs import send_report

api = FastAPI()


@api.post("/reports/{day}", status_code=202)
def report(day: str) -> None:
    """A plain task."""
    send_report.delay(day)


@api.post("/charges", status_code=202)
def charge_now(order: dict) -> None:
    """A handler called without a record: a plain task, without retries and without dead letters."""
    charge.delay(order)
