"""The alarms of an environment, by its declaration. Their properties: tests/unit/constructs/monitoring."""

from dataclasses import replace
from typing import Any

import pytest

from sluice.declaration import AutomaticRedrive, Consumer, Environment, ExistingTopic, Gaps, Hourly, NewDatabase, Topic
from sluice.declaration.alarms import Hearer, alarms, of_consumer

BILLING = Consumer(name="billing", topic="events", handlers="their.handlers")
ENVIRONMENT = Environment(name="dev", consumers=(BILLING,))
STOCK = ExistingTopic(arn="arn:aws:sns:us-east-1:111122223333:stock.fifo")

ALWAYS = {
    *("topic-failed", "topic-lost", "billing-dead-letters", "billing-undelivered", "billing-late", "billing-expiring"),
    *("billing-stuck", "billing-pinned", "billing-failing", "billing-dying", "billing-delayed"),
    "billing-short",
}
OF_DATABASE = {"database-full", "database-connections", "database-wraparound"}
RELAY = {*OF_DATABASE, "relay-lagging", "relay-quarantined", "relay-alone"}


def _alarm_names(environment: Environment) -> set[str]:
    """Return the conditions of an environment's alarms, of which none is doubled."""
    names = [alarm.name.removeprefix("sluice-dev-") for alarm in alarms(environment)]
    assert len(set(names)) == len(names)
    return set(names)


def test_every_environment_has_the_alarms_of_its_topic_and_its_consumers() -> None:
    """Without any option."""
    assert _alarm_names(ENVIRONMENT) == ALWAYS


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"database": NewDatabase()}, RELAY),
        ({"database": NewDatabase(), "relay": False}, OF_DATABASE),
        (
            {"database": NewDatabase(), "verification": Hourly()},
            RELAY | {"verdict-invalid", "verdict-unjudged"},
        ),
        (
            {"topics": (Topic(), Topic(name="payments", subscriber_accounts=("444455556666",)))},
            {"topic-payments-failed", "topic-payments-lost"},
        ),
        ({"topics": (Topic(), STOCK), "database": NewDatabase()}, RELAY),
        (
            {"topics": (Topic(), replace(STOCK, relay=True)), "database": NewDatabase()},
            RELAY | {"relay-stock-lagging", "relay-stock-quarantined", "relay-stock-alone"},
        ),
    ],
)
def test_a_topic_and_a_relay_have_alarms_of_their_own(changes: dict[str, Any], more: set[str]) -> None:
    """An existing topic has no alarms, because its metrics also count subscriptions of other owners."""
    assert _alarm_names(replace(ENVIRONMENT, **changes)) == ALWAYS | more


@pytest.mark.parametrize(
    ("changes", "more", "fewer"),
    [
        ({"min_tasks": 0, "acceptable_latency_seconds": 1_200}, {"billing-asleep"}, {"billing-short"}),
        ({"gaps": Gaps.HALT}, {"billing-parked"}, set()),
        ({"automatic_redrive": AutomaticRedrive()}, {"billing-redrive", "billing-redrive-off"}, set()),
        ({"fifo": False}, set(), {"billing-stuck"}),
    ],
)
def test_an_option_of_a_consumer_has_its_alarm(changes: dict[str, Any], more: set[str], fewer: set[str]) -> None:
    environment = replace(ENVIRONMENT, consumers=(replace(BILLING, **changes),))

    assert _alarm_names(environment) == (ALWAYS | more) - fewer


@pytest.mark.parametrize(
    ("hearer", "conditions"),
    [
        (Hearer.DEPLOYMENT, ["failing", "dying", "delayed"]),
        (Hearer.SCALING, ["asleep"]),
        (Hearer.REDRIVE, ["redrive"]),
    ],
)
def test_deployment_scaling_and_redrive_each_listen_to_their_alarms(hearer: Hearer, conditions: list[str]) -> None:
    """A deployment is rolled back, tasks are started, and dead letters are redriven by alarms."""
    every = replace(BILLING, min_tasks=0, acceptable_latency_seconds=1_200, automatic_redrive=AutomaticRedrive())

    assert [alarm.condition for alarm in of_consumer(ENVIRONMENT, every, hearer)] == conditions


@pytest.mark.parametrize(("gaps", "minutes"), [(Gaps.HALT, 10), (Gaps.WAIT, 17)])
def test_the_parked_alarm_waits_longer_than_a_group_waits_for_its_gap(gaps: Gaps, minutes: int) -> None:
    """10 minutes, and with Gaps.WAIT the declared 450 s more, rounded down to minutes."""
    consumer = replace(BILLING, gaps=gaps, gap_wait_seconds=450)

    (parked,) = (alarm for alarm in of_consumer(ENVIRONMENT, consumer) if alarm.condition == "parked")

    assert parked.minutes == minutes
    assert parked.evaluated_minutes == minutes
