"""A Django project in a run: its producers and workers are processes, the database is the run's Postgres."""

from typing import Any

import django
from django.conf import settings
from sqlalchemy import make_url

OWN, APART = "default", "apart"
"""Aliases of the same database: that of outbox and inbox, and one whose connections no worker lends."""


def set_up(dsn: str) -> None:
    """Configure this process's Django for the run's database."""
    if settings.configured:
        return
    url = make_url(dsn)
    host = url.query.get("host", url.host)
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": host or "",
        "PORT": url.port or "",
    }
    settings.configure(
        SECRET_KEY="of a run",  # noqa: S106
        USE_TZ=True,
        INSTALLED_APPS=["sluice.django"],
        DATABASES={OWN: database, APART: database},
    )
    django.setup()


def take_dsn(arguments: list[str]) -> str:
    """Take `--dsn URL` out of a command's arguments, and return the URL."""
    place = arguments.index("--dsn")
    dsn = arguments[place + 1]
    del arguments[place : place + 2]
    return dsn
