"""The deployment of a load test, for tests that reach nobody."""

from spark_load.runtime.deployment import LoadDeployment

ONE_QUEUE = LoadDeployment(
    endpoint_url=None,
    region="us-east-1",
    topic_arn="arn:aws:sns:us-east-1:000000000000:events.fifo",
    topic="events.fifo",
    queue_urls={"billing.fifo": "https://sqs/billing.fifo"},
    dead_letter_queues={},
    visibility_timeout_seconds={"billing.fifo": 30},
    max_receive_count={"billing.fifo": 5},
    environment="local",
    consumers={"billing.fifo": "billing"},
)
