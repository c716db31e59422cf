"""The stack of where the tasks run: VPC, endpoints and security groups."""

from constructs import Construct

from sluice.constructs.network import Network
from sluice.declaration import Environment
from sluice.declaration.arguments import typed
from sluice.stacks.environment_stack import EnvironmentStack


class NetworkStack(EnvironmentStack):
    """Holds `network`: a VPC, new or existing, and the security groups of tasks and producers."""

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_, environment=environment, holds="where the tasks run")
        self.network = Network(self, "Network", environment=environment)
        if self.network.producers is not None:
            self.output(ProducersSecurityGroupId=self.network.producers.security_group_id)
