"""The topic that a command about the outbox acts on."""

from dataclasses import replace

import pytest

from sluice.cli.targets import outbox_target
from sluice.declaration import Consumer, Topic
from sluice.errors import ConfigError
from tests.support.declaration import environment

TWO_TOPICS = replace(
    environment("local"),
    topics=(Topic(name="orders"), Topic(name="payments")),
    consumers=(Consumer(name="billing", topic="orders"), Consumer(name="ledger", topic="payments")),
)


@pytest.mark.parametrize(("topic", "name"), [(None, "orders"), ("orders", "orders"), ("payments", "payments")])
def test_a_command_acts_on_the_named_topic_or_the_first(topic: str | None, name: str) -> None:
    with outbox_target(TWO_TOPICS, "sqlite://", topic) as found:
        assert found.topic == f"sluice-local-{name}.fifo"


def test_an_undeclared_topic_is_refused_with_a_suggestion() -> None:
    with (
        pytest.raises(ConfigError, match=r"topic is 'payment' \(did you mean 'payments'\?\), and .*; name one of them"),
        outbox_target(TWO_TOPICS, "sqlite://", "payment"),
    ):
        pass
