"""Databases with the inbox's tables, of every kind."""

from tests.integration.outbox.conftest import postgres, postgres_url
from tests.integration.worker.conftest import engine, on_file, on_postgres

__all__ = ["engine", "on_file", "on_postgres", "postgres", "postgres_url"]
