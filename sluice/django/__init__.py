"""Outbox and inbox in a Django project, on Django's own connection: add `sluice.django` to INSTALLED_APPS.

A producer needs `AtomicOutbox`, a consumer `orm_handler`. `manage.py migrate` makes the tables, and `manage.py
sluice_relay`, `sluice_worker` and `sluice_dlq` do what the commands of `sluice` do, on a database of the project.

Each name is imported when it is first used: Django imports this package before its settings count.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.django.handlers import orm_handler
    from sluice.django.outbox import AtomicOutbox
else:
    from sluice.extras import facade

    __getattr__ = facade(__name__, "django", {"handlers": ("orm_handler",), "outbox": ("AtomicOutbox",)})

__all__ = ["AtomicOutbox", "orm_handler"]
