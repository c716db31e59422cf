"""Two topics of our own and one of somebody else's, their queue pair, a standard queue, and another account."""

import os
from dataclasses import replace

import aws_cdk as cdk

from sluice.declaration import Consumer, Environment, ExistingQueue, ExistingTopic, NewNetwork, Removal, Topic
from stacks.stage import EnvironmentStage

ACCOUNT, SUBSCRIBER = "000000000000", "444455556666"
INVOICES = ExistingQueue(
    arn=f"arn:aws:sqs:us-east-1:{ACCOUNT}:invoices.fifo",
    dead_letter_queue_arn=f"arn:aws:sqs:us-east-1:{ACCOUNT}:invoices-dead.fifo",
)
SHARED = Environment(
    name="shared",
    account=ACCOUNT,
    removal=Removal.DESTROY,
    topics=(
        Topic(name="orders", subscriber_accounts=(SUBSCRIBER,)),
        Topic(name="payments"),
        ExistingTopic(arn=f"arn:aws:sns:us-east-1:{ACCOUNT}:stock.fifo"),
    ),
    network=NewNetwork(restrict_default_security_group=False),
    image="sluice-worker:0.1.0",
    consumers=(
        Consumer(name="billing", queue=INVOICES),
        Consumer(name="search", fifo=False),
        Consumer(name="ledger", topic="payments"),
        Consumer(name="warehouse", topic="stock"),
    ),
)


def main() -> None:
    """Synthesize it; with $EDITED after an engineer took a consumer away."""
    app = cdk.App()
    kept = SHARED.consumers[:-1] if "EDITED" in os.environ else SHARED.consumers
    EnvironmentStage(app, environment=replace(SHARED, consumers=kept))
    app.synth()


if __name__ == "__main__":
    main()
