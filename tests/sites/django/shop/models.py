"""What the handler writes."""

from django.db import models


class Payment(models.Model):
    """One for each order that was charged."""

    order = models.IntegerField()
