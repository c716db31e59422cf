"""A Django project: one app with invoices, on an SQLite file and on a Postgres that a test names."""

from typing import Any

import django
from django.conf import settings
from django.db import connections

APP = "tests.support.shop"
_BACKENDS = {"default": "django.db.backends.sqlite3", "postgresql": "django.db.backends.postgresql"}


def set_up() -> None:
    """Configure this process's Django, once."""
    if settings.configured:
        return
    middleware = ("sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware")
    processors = ("template.context_processors.request", "contrib.auth.context_processors.auth")
    settings.configure(
        SECRET_KEY="of a test",  # noqa: S106
        USE_TZ=True,
        TIME_ZONE="Europe/Berlin",
        ROOT_URLCONF="tests.support.shop.urls",
        STATIC_URL="static/",
        ALLOWED_HOSTS=["testserver"],
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
            "sluice.django",
            APP,
        ],
        MIDDLEWARE=[
            *(f"django.contrib.{name}" for name in middleware),
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        *(f"django.{name}" for name in processors),
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        DATABASES={alias: {"ENGINE": engine, "NAME": "unnamed"} for alias, engine in _BACKENDS.items()},
    )
    django.setup()


def use(alias: str, **parameters: Any) -> None:
    """Replace a database of the project by another."""
    connections[alias].close()
    connections.settings[alias].update(parameters)
