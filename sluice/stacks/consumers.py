"""The stack of what runs: a service for each consumer, and the relays."""

from pathlib import Path

from constructs import Construct

from sluice.constructs.database import DatabaseAccess
from sluice.constructs.fan_out import Keys
from sluice.constructs.network import Network
from sluice.constructs.services.consumers import Consumers
from sluice.declaration import Environment
from sluice.declaration.arguments import typed
from sluice.declaration.validation import require
from sluice.stacks.environment_stack import EnvironmentStack


class ConsumersStack(EnvironmentStack):
    """Holds `cluster`, `services` by their consumer's name, and `relays` by their topic's.

    Args:
        environment: what is declared.
        network: where the tasks run.
        database: how they get into it; None if there is none.
        keys: of topics and queues; None if SQS holds them.
        project: the folder with the Dockerfile of an image that is to be built.

    Raises:
        ConfigError: the environment has handlers and no database; or its image is to be built, and there is no
            Dockerfile, or the image would not hold a consumer's handlers.
    """

    @typed
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: Network,
        database: DatabaseAccess | None,
        keys: Keys | None,
        project: Path = Path(),
    ) -> None:
        for consumer in environment.consumers:
            require(
                consumer,
                consumer.handlers is None or database is not None,
                field="handlers",
                allowed=f"None while environment {environment.name!r} has no database: a worker keeps its inbox there;"
                " declare database=NewDatabase()",
            )
        super().__init__(scope, id_, environment=environment, holds="the consumers' workers")
        consumers = Consumers(
            self,
            "Consumers",
            environment=environment,
            network=network,
            database=database,
            keys=keys,
            project=project,
        )
        self.cluster, self.services, self.relays = consumers.cluster, consumers.services, consumers.relays
