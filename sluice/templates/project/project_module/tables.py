"""Makes the tables of this project: python -m project_module.tables. Every task of the stacks runs it before it starts.

Before a table changes, put a migration in its place: migrate=("alembic", "upgrade", "head") in environments.py.
"""

import os
import sys

from sluice.declaration import load_task_declaration
from sluice.errors import ConfigError
from sluice.messaging import database_engine

from project_module.producer import Base


def main() -> None:
    """Create the tables that are missing, in the database of SLUICE_DSN, or where a task has it."""
    environment = load_task_declaration().environment(os.environ.get("SLUICE_ENV", "local"))
    Base.metadata.create_all(database_engine(environment.region, os.environ.get("SLUICE_DSN")))


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(f"tables: {error}")
