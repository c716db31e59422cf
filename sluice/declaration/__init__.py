"""Typed declarations: values that refuse in one line what cannot be right, and what follows from them, as names do.

Nothing here calls AWS or imports a project's `environments.py` by name: `load_declaration` reads it, for the rim alone.
"""

from sluice.declaration.consumer import RETRY_SECONDS_MAX, Consumer, Gaps, Poison
from sluice.declaration.environment import Encryption, Environment, Removal
from sluice.declaration.fields.automatic_redrive import AutomaticRedrive
from sluice.declaration.fields.database import DatabaseRole, DatabaseUsers, ExistingDatabase, NewDatabase
from sluice.declaration.fields.existing import ExistingKeys, ExistingQueue
from sluice.declaration.fields.functions import Lambda
from sluice.declaration.fields.image import Architecture
from sluice.declaration.fields.network import ExistingNetwork, NewNetwork
from sluice.declaration.fields.operators import SlackChannel
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.loading import Declaration, is_declared, load_declaration, load_task_declaration

__all__ = [
    "RETRY_SECONDS_MAX",
    "Architecture",
    "AutomaticRedrive",
    "Consumer",
    "DatabaseRole",
    "DatabaseUsers",
    "Declaration",
    "Encryption",
    "Environment",
    "ExistingDatabase",
    "ExistingKeys",
    "ExistingNetwork",
    "ExistingQueue",
    "ExistingTopic",
    "Gaps",
    "Lambda",
    "NewDatabase",
    "NewNetwork",
    "Poison",
    "Removal",
    "SlackChannel",
    "Topic",
    "is_declared",
    "load_declaration",
    "load_task_declaration",
]
