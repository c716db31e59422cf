"""The stacks of an environment, one for each concern. `stacks/stage.py` of a project composes them.

What a stack holds are its attributes, for stacks of your own beside it (docs/guides/existing-things.md).
"""

from sluice.stacks.consumers import ConsumersStack
from sluice.stacks.database import DatabaseStack
from sluice.stacks.environment_stack import EnvironmentStack
from sluice.stacks.messaging import MessagingStack
from sluice.stacks.network import NetworkStack
from sluice.stacks.observability import ObservabilityStack

__all__ = [
    "ConsumersStack",
    "DatabaseStack",
    "EnvironmentStack",
    "MessagingStack",
    "NetworkStack",
    "ObservabilityStack",
]
