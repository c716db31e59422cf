"""A Postgres for functions in real processes."""

from tests.integration.messaging.conftest import database_folder, postgres, postgres_tables, postgres_url, schemas

__all__ = ["database_folder", "postgres", "postgres_tables", "postgres_url", "schemas"]
