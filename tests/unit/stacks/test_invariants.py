"""What holds whatever is declared, and that each check can fail."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from sluice.declaration import Environment
from tests.support.declaration import ENVIRONMENTS
from tests.unit.stacks import synthesis
from tests.unit.stacks.extra import EXTRA, FULL
from tests.unit.stacks.invariants import problems
from tests.unit.stacks.strategies import environments
from tests.unit.stacks.synthesis import Properties, Resource

LEDGER, NIGHT = "sluice-full-ledger.fifo", "sluice-full-night-batch.fifo"
DLQ, UNDELIVERED = "sluice-full-ledger-dlq.fifo", "sluice-full-ledger-undelivered-dlq.fifo"
ORDERS, OPERATORS = "sluice-full-orders.fifo", "sluice-full-operators"
OF_LEDGER, OF_TOPIC = "FanoutConsumerledgerQueuePolicy", "FanoutTopicPolicy"
TO_LEDGER = "FanoutConsumerledgerQueuefullMessagingFanoutTopic35266735"
ROLE = "ConsumersConsumerledgerWorkerTaskDefinitionTaskRoleDefaultPolicy"
KEY, ALARMS_AND_SNS = "FanoutKeysQueues", ["cloudwatch.amazonaws.com", "sns.amazonaws.com"]
LEDGER_ARN = f"arn:aws:sqs:eu-central-1:111122223333:{LEDGER}"
LATE, LAGGING, ASLEEP = (f"sluice-full-{name}" for name in ("ledger-late", "relay-lagging", "night-batch-asleep"))


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=[*ENVIRONMENTS, *EXTRA])
def test_nothing_is_wrong_in_any_declared_environment(
    resources: Mapping[str, list[Resource]], environment: Environment
) -> None:
    """Nor in those that use every option."""
    assert problems(resources[environment.name], environment) == []


@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes half a second: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(environment=environments())
def test_nothing_is_wrong_in_any_environment_that_may_be_declared(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> None:
    """Every queue has a FIFO DLQ of its own, nobody may too much, every alarm says what a gap means, and so on."""
    stacks = synthesis.synthesize(environment, tmp_path_factory.mktemp("cdk"))
    found = synthesis.resources({part: stack.template for part, stack in stacks.items()})

    assert problems(found, environment) == []


def _rules(properties: Properties) -> list[Any]:
    document = properties["KeyPolicy" if "KeyPolicy" in properties else "PolicyDocument"]
    statements: list[Any] = document["Statement"]
    return statements


@pytest.mark.parametrize(
    ("name", "edit", "problem"),
    [
        (LEDGER, lambda p: p.pop("FifoQueue"), f"{LEDGER} is not FIFO for high throughput"),
        (LEDGER, lambda p: p.update(DeduplicationScope="queue"), f"{LEDGER} is not FIFO for high throughput"),
        (ORDERS, lambda p: p.pop("FifoThroughputScope"), "the topic is not FIFO for high throughput"),
        (ORDERS, lambda p: p.update(ContentBasedDeduplication=True), "something deduplicates by content"),
        (LEDGER, lambda p: p.pop("RedrivePolicy"), f"{LEDGER} has no DLQ"),
        (DLQ, lambda p: p.update(FifoQueue=False), f"{DLQ} is not of the type of {LEDGER}"),
        (DLQ, lambda p: p.update(MessageRetentionPeriod=60), f"{DLQ} keeps messages for a shorter time than {LEDGER}"),
        (DLQ, lambda p: p.pop("RedriveAllowPolicy"), f"{DLQ} does not take messages from {LEDGER} alone"),
        (TO_LEDGER, lambda p: p.update(RedrivePolicy={"deadLetterTargetArn": f"Arn({DLQ})"}), f"{DLQ} is the DLQ of 2"),
        (TO_LEDGER, lambda p: p.pop("RedrivePolicy"), f"what SNS cannot deliver to Arn({LEDGER}) goes to None"),
        (TO_LEDGER, lambda p: p.pop("RawMessageDelivery"), f"Arn({LEDGER}) gets envelopes"),
        (TO_LEDGER, lambda p: p.update(Endpoint=f"Arn({NIGHT})"), f"subscribed are {[f'Arn({NIGHT})'] * 2}"),
        (OF_LEDGER, lambda p: _rules(p).pop(), f"SNS may not send to Arn({LEDGER})"),
        (OF_LEDGER, lambda p: _rules(p).pop(0), f"{LEDGER} takes what is not encrypted in transit"),
        (OF_TOPIC, lambda p: _rules(p).pop(0), f"{ORDERS} takes what is not encrypted in transit"),
        (LEDGER, lambda p: p.pop("KmsMasterKeyId"), f"{LEDGER} is encrypted with {{}}"),
        (ORDERS, lambda p: p.pop("KmsMasterKeyId"), f"{ORDERS} is encrypted with None"),
        (KEY, lambda p: p.pop("EnableKeyRotation"), f"{KEY} does not rotate"),
        (KEY, lambda p: _rules(p).pop(), f"keys let in {{'FanoutKeysTopic': {ALARMS_AND_SNS}, '{KEY}': []}}"),
        (KEY, lambda p: _rules(p)[1].pop("Condition"), f"{KEY}: sns.amazonaws.com is let in on whoever's behalf"),
        (OF_LEDGER, lambda p: _rules(p)[1].update(Principal="*"), f"{OF_LEDGER}: anybody is allowed something"),
        (ROLE, lambda p: _rules(p)[2].update(NotAction="x"), f"{ROLE}: something is allowed by what it is not"),
        (ROLE, lambda p: _rules(p)[2].update(Action="sqs:*"), f"{ROLE}: sqs:* is allowed"),
        (ROLE, lambda p: _rules(p)[2].update(Resource="*"), f"{ROLE}: something is allowed on *"),
        (
            ROLE,
            lambda p: _rules(p)[2]["Action"].append("sqs:SendMessage"),
            f"ledger may sqs:SendMessage on {LEDGER_ARN}",
        ),
        (ROLE, lambda p: _rules(p)[1]["Resource"].pop(0), f"ledger may kms:Decrypt on Arn({KEY})"),
        (ROLE, lambda p: _rules(p).pop(0), "ledger may secretsmanager:GetSecretValue on nothing"),
        (LATE, lambda p: p.pop("TreatMissingData"), f"alarm {LATE} takes a gap for None"),
        (LAGGING, lambda p: p.update(TreatMissingData="ignore"), f"alarm {LAGGING} takes a gap for ignore"),
        (LATE, lambda p: p.pop("OKActions"), f"alarm {LATE} does not tell the operators"),
        (ASLEEP, lambda p: p.update(AlarmActions=[]), f"alarm {ASLEEP} wakes nobody"),
        (
            OPERATORS,
            lambda p: p.update(FifoTopic=True),
            "CloudWatch does not publish to the operator topic: it is FIFO",
        ),
        ("OperatorsTopicPolicy", lambda p: _rules(p).pop(), "to the operator topic publish []"),
    ],
)
def test_each_check_can_fail(
    resources: Mapping[str, list[Resource]], name: str, edit: Callable[[Properties], Any], problem: str
) -> None:
    """One property edited by hand in the environment that uses every option, and what is then wrong of it."""
    found = copy.deepcopy(resources[FULL.name])
    (resource,) = (entry for entry in found if entry.name == name)

    edit(resource.properties)

    assert problem in problems(found, FULL)


def test_a_queue_there_twice_and_an_alarm_not_there_are_noticed(resources: Mapping[str, list[Resource]]) -> None:
    """Which no edit of one property shows."""
    found = [resource for resource in resources[FULL.name] if not resource.name.endswith("-ledger-undelivered")]
    queue = next(resource for resource in found if resource.name == LEDGER)

    assert {
        f"2 queues are called {LEDGER}",
        "alarm sluice-full-ledger-undelivered is missing",
    } <= set(problems([*found, queue], FULL))
