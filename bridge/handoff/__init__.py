"""From what may go out to the Celery broker, through the ledger."""
