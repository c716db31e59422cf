"""SQS and SNS for a test, simulated in its process; `deploy` makes the topics and queues of an environment."""

from collections.abc import Sequence

from sluice.declaration import Environment
from sluice.simulator.hook import Simulator
from sluice.topology import Topology, deploy


class SimulatedAws(Simulator):
    """SQS and SNS in this process: `client("sqs")`, `client("sns")`, and a `clock` that only `advance` and polls move.

    Use `attach` for a client that your own code made.
    """

    def deploy(self, environment: Environment) -> Topology:
        """Make an environment's topic, queues and subscriptions; see `sluice.testing.deploy`."""
        return deploy(environment, sqs=self.client("sqs"), sns=self.client("sns"))

    def bodies(self, queue_url: str) -> Sequence[str]:
        """Return the bodies of all messages in a queue, in order, without receiving them.

        Messages in flight are among them.
        """
        name = queue_url.rpartition("/")[2]
        (queue,) = (queue for arn, queue in self.account.sqs.queues.items() if arn.rpartition(":")[2] == name)
        return [message.body for message in queue.in_order()]
