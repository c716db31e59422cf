"""One environment as a CDK stage. This file is yours: it says which stacks there are, and what each is given.

A stack of your own goes beside these, here or in a module of this folder, and takes from them what it needs: what a
stack holds are its attributes, such as `self.messaging.fan_out.topics["events"]`.
"""

from pathlib import Path

import aws_cdk as cdk
from constructs import Construct
from sluice.constructs.database import DatabaseAccess
from sluice.declaration import Environment, ExistingDatabase, NewDatabase, naming
from sluice.declaration.arguments import check_argument_types
from sluice.stacks import ConsumersStack, DatabaseStack, MessagingStack, NetworkStack, ObservabilityStack


class EnvironmentStage(cdk.Stage):
    """Everything one environment consists of, deployed with `cdk deploy -c env=NAME 'NAME/*'`.

    Args:
        environment: what is declared.
        project: the folder with the Dockerfile of an image that is to be built; by default where `cdk` starts the app,
            beside cdk.json.
    """

    @check_argument_types
    def __init__(self, scope: Construct, *, environment: Environment, project: Path = Path()) -> None:
        """Make the stacks, each from what those before it hold."""
        region = cdk.Environment(account=environment.account, region=environment.region)
        super().__init__(scope, naming.stage_name(environment), env=region)

        self.network = NetworkStack(self, "Network", environment=environment)
        network = self.network.network

        self.database: DatabaseStack | None = None
        database: DatabaseAccess | None = None
        match environment.database:
            case NewDatabase() as new:
                self.database = DatabaseStack(self, "Database", environment=environment, declared=new, network=network)
                database = self.database.database.access
            case ExistingDatabase() as existing:
                database = DatabaseAccess.to_existing(existing)

        self.messaging = MessagingStack(self, "Messaging", environment=environment, database=database)
        keys = self.messaging.fan_out.keys

        self.consumers = ConsumersStack(
            self,
            "Consumers",
            environment=environment,
            network=network,
            database=database,
            keys=keys,
            project=project,
        )
        self.consumers.add_stack_dependency(self.messaging, "workers find their queues by name")

        topic_key = None if keys is None else keys.topic
        self.observability = ObservabilityStack(self, "Observability", environment=environment, key=topic_key)

        for key, value in environment.all_tags.items():
            cdk.Tags.of(self).add(key, value)
