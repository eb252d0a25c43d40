"""Ready records become Celery messages, through the ledger: batches, batch size, queue share."""
