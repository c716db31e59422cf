"""Outbox and inbox in a Django project, on Django's own connection: add `sluice.django` to INSTALLED_APPS.

A producer uses `AtomicOutbox`, a consumer `orm_handler`. `manage.py migrate` creates the tables. `manage.py
sluice_relay`, `sluice_worker`, `sluice_dlq` and `sluice_inbox` run the commands of `sluice` on a database of the
project.

A name's module is imported when the name is first used: Django imports this package before it has loaded its settings.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.django.handlers import orm_handler
    from sluice.django.outbox import AtomicOutbox
else:
    from sluice.extras import facade

    __getattr__ = facade(__name__, "django", {"handlers": ("orm_handler",), "outbox": ("AtomicOutbox",)})

__all__ = ["AtomicOutbox", "orm_handler"]
