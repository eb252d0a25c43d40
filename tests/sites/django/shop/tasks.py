"""A plain task of the project's own, which has nothing to do with Kafka."""

from celery import shared_task

from shop.models import Payment


@shared_task
def count_payments() -> int:
    """How many there are."""
    return Payment.objects.count()
