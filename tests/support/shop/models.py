"""The rows of the shop."""

from django.db import models


class Invoice(models.Model):
    """An invoice."""

    order = models.TextField()
    cents = models.IntegerField(default=0)
    made_at = models.DateTimeField(auto_now_add=True)
