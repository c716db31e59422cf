"""The app: outbox and inbox of Sluice in a Django project."""

from django.apps import AppConfig


class SluiceConfig(AppConfig):
    """Sluice: its tables, commands and admin pages."""

    name = "sluice.django"
    label = "sluice"
    verbose_name = "Sluice"
    default_auto_field = "django.db.models.BigAutoField"
