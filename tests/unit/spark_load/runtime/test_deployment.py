"""A load test refuses some environments before it calls the endpoint."""

from dataclasses import replace

import pytest

from sluice.declaration import Consumer, Environment, ExistingTopic
from sluice.errors import ConfigError
from spark_load.runtime import deployment

THEIRS = ExistingTopic(arn="arn:aws:sns:us-east-1:111122223333:stock.fifo")
FILTERED = Consumer(name="mails", filter_policy={"size": ["large"]})
DEV = Environment(name="dev", consumers=(Consumer(name="billing"), Consumer(name="search", fifo=False)))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (DEV, r"Consumer\('search'\).fifo is False, allowed for a load test is True"),
        (
            replace(DEV, consumers=(Consumer(name="billing"), FILTERED)),
            r"Consumer\('mails'\).filter_policy is \{'size': \['large'\]\}, allowed for a load test is None",
        ),
        (
            replace(DEV, topics=(THEIRS,)),
            r"Environment\('dev'\).topics begins with arn:aws:sns:us-east-1:111122223333:stock.fifo, allowed",
        ),
    ],
)
def test_a_load_test_refuses_existing_topics_and_unjudgeable_queues(environment: Environment, message: str) -> None:
    """A standard queue has no order, a filter drops messages lawfully, and an existing topic has other subscribers."""
    with pytest.raises(ConfigError, match=message):
        deployment.find(environment, endpoint_url="http://127.0.0.1:9")
