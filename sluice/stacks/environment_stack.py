"""What the stacks of an environment share: their names, their zones and their protection."""

import aws_cdk as cdk
from constructs import Construct

from sluice.declaration import Environment, NewNetwork, Removal, naming
from sluice.declaration.arguments import typed


class EnvironmentStack(cdk.Stack):
    """One stack of an environment, called after it, and protected from deletion where the environment is retained.

    Args:
        environment: whose stack it is.
        holds: what it holds, for its description.
    """

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, holds: str) -> None:
        self._zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 0
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, id_.lower()),
            description=f"Sluice {environment.name}: {holds}",
            termination_protection=environment.removal is Removal.RETAIN,
        )

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones as the region will name them: asking at synth would need the network and an account."""
        return [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in range(self._zones)]

    def output(self, **values: str) -> None:
        """Say where things are, a name each."""
        for name, value in values.items():
            cdk.CfnOutput(self, name, value=value)
