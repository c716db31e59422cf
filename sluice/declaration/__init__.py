"""What is declared: typed values that refuse in one line what cannot be right, and what follows from them, as names do.

Nothing here calls AWS or imports a project's `environments.py` by name: `load_declaration` reads it, for the rim alone.
"""

from sluice.declaration.consumer import RETRY_SECONDS_MAX, Consumer, Gaps, Poison
from sluice.declaration.environment import Encryption, Environment, Removal
from sluice.declaration.image import registry
from sluice.declaration.loading import Declaration, is_declared, load_declaration, load_task_declaration
from sluice.declaration.network import Database, ExistingNetwork, NewNetwork
from sluice.declaration.operators import SlackChannel

__all__ = [
    "RETRY_SECONDS_MAX",
    "Consumer",
    "Database",
    "Declaration",
    "Encryption",
    "Environment",
    "ExistingNetwork",
    "Gaps",
    "NewNetwork",
    "Poison",
    "Removal",
    "SlackChannel",
    "is_declared",
    "load_declaration",
    "load_task_declaration",
    "registry",
]
