"""Two topics of our own, one of somebody else's with our relay, their queue pair, keys and cluster, a standard queue.

Also a declaration, for the commands of a test.
"""

import os
from dataclasses import replace

import aws_cdk as cdk

from sluice.declaration import (
    Consumer,
    Encryption,
    Environment,
    ExistingKeys,
    ExistingQueue,
    ExistingTopic,
    NewDatabase,
    NewNetwork,
    Removal,
    Topic,
)
from stacks.stage import EnvironmentStage

ACCOUNT, SUBSCRIBER = "000000000000", "444455556666"
KEY_IDS = ("11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000")
TOPIC_KEY, QUEUE_KEY = (f"arn:aws:kms:us-east-1:{ACCOUNT}:key/{id_}" for id_ in KEY_IDS)
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
        ExistingTopic(arn=f"arn:aws:sns:us-east-1:{ACCOUNT}:stock.fifo", relay=True),
    ),
    encryption=Encryption.CMK,
    keys=ExistingKeys(topic_arn=TOPIC_KEY, queues_arn=QUEUE_KEY),
    cluster="everybodys",
    database=NewDatabase(),
    network=NewNetwork(restrict_default_security_group=False),
    image="sluice-worker:0.1.0",
    consumers=(
        Consumer(name="billing", topic="orders", queue=INVOICES),
        Consumer(name="search", topic="orders", fifo=False),
        Consumer(name="ledger", topic="payments"),
        Consumer(name="warehouse", topic="stock"),
    ),
)
ENVIRONMENTS = (SHARED,)


def main() -> None:
    """Synthesize the environment; with the variable EDITED without its last consumer."""
    app = cdk.App()
    kept = SHARED.consumers[:-1] if "EDITED" in os.environ else SHARED.consumers
    EnvironmentStage(app, environment=replace(SHARED, consumers=kept))
    app.synth()


if __name__ == "__main__":
    main()
