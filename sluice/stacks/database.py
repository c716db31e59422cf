"""The stack of the environment's own database."""

from constructs import Construct

from sluice.constructs.database import Database
from sluice.constructs.network import Network
from sluice.declaration import Environment, NewDatabase
from sluice.declaration.arguments import typed
from sluice.stacks.environment_stack import EnvironmentStack


class DatabaseStack(EnvironmentStack):
    """Holds `database`: the cluster with inbox and outbox. An existing database needs no stack."""

    @typed
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, declared: NewDatabase, network: Network
    ) -> None:
        super().__init__(scope, id_, environment=environment, holds="inbox and outbox")
        self.database = Database(self, "Database", environment=environment, declared=declared, network=network)
        self.output(
            SecretArn=self.database.access.secret_arn,
            Endpoint=self.database.cluster.cluster_endpoint.socket_address,
        )
