"""Typed declarations of environments and consumers, and what follows from them: names, alarms, policies, expressions.

A wrong value is refused in one line when it is made. Nothing here calls AWS. Only `load_declaration` reads a project's
`environments.py`, and only commands, stacks and test fixtures call it.
"""

from sluice.declaration.consumer import HANDLER_TIMEOUTS_MAX, RETRY_SECONDS_MAX, Commit, Consumer, Gaps, Poison
from sluice.declaration.environment import Encryption, Environment, Removal
from sluice.declaration.fields.automatic_redrive import AutomaticRedrive
from sluice.declaration.fields.database import DatabaseRole, DatabaseUsers, ExistingDatabase, NewDatabase
from sluice.declaration.fields.existing import ExistingKeys, ExistingQueue
from sluice.declaration.fields.functions import Lambda
from sluice.declaration.fields.image import Architecture
from sluice.declaration.fields.network import ExistingNetwork, NewNetwork
from sluice.declaration.fields.operators import SlackChannel
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.fields.verification import Hourly
from sluice.declaration.loading import Declaration, is_declared, load_declaration, load_task_declaration

__all__ = [
    "HANDLER_TIMEOUTS_MAX",
    "RETRY_SECONDS_MAX",
    "Architecture",
    "AutomaticRedrive",
    "Commit",
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
    "Hourly",
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
