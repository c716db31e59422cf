"""A worker does not start on a queue whose attributes differ from its declaration."""

import pytest

from sluice.declaration import Consumer, Gaps, Poison
from sluice.messaging.worker.preflight import faults

DECLARED = Consumer(name="billing")
QUEUE_ATTRIBUTES = {
    "FifoQueue": "true",
    "VisibilityTimeout": "60",
    "MessageRetentionPeriod": "345600",
    "RedrivePolicy": '{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:123456789012:dlq.fifo","maxReceiveCount":5}',
}
DLQ_ATTRIBUTES = {"FifoQueue": "true", "MessageRetentionPeriod": "1209600"}
STANDARD_QUEUE_ATTRIBUTES = {name: value for name, value in QUEUE_ATTRIBUTES.items() if name != "FifoQueue"}
STANDARD_DLQ_ATTRIBUTES = {"MessageRetentionPeriod": "1209600"}


@pytest.mark.parametrize(
    ("live", "dead"),
    [
        (QUEUE_ATTRIBUTES, DLQ_ATTRIBUTES),
        (QUEUE_ATTRIBUTES, None),
        (STANDARD_QUEUE_ATTRIBUTES, STANDARD_DLQ_ATTRIBUTES),
        (QUEUE_ATTRIBUTES | {"RedrivePolicy": '{"deadLetterTargetArn":"a","maxReceiveCount":"5"}'}, DLQ_ATTRIBUTES),
    ],
    ids=["FIFO", "a DLQ that may not be read", "standard", "a count as text"],
)
def test_a_queue_as_declared_has_no_faults(live: dict[str, str], dead: dict[str, str] | None) -> None:
    """The attributes are compared that a worker depends on. A role may lack the right to read the DLQ."""
    assert faults(DECLARED, live, dead) == []


@pytest.mark.parametrize(
    ("live", "dead", "fault"),
    [
        (
            QUEUE_ATTRIBUTES | {"VisibilityTimeout": "30"},
            DLQ_ATTRIBUTES,
            "the queue's VisibilityTimeout is 30, allowed is visibility_timeout_seconds (60), by which its workers hold"
            " a message; deploy the environment's stacks, or declare it so",
        ),
        (
            {name: value for name, value in QUEUE_ATTRIBUTES.items() if name != "RedrivePolicy"},
            None,
            "the queue has no RedrivePolicy, allowed is one with a DLQ, or a poison message comes for ever;"
            " deploy the environment's stacks, or declare it so",
        ),
        (  # AWS refuses it; not everything that speaks SQS does
            QUEUE_ATTRIBUTES,
            STANDARD_DLQ_ATTRIBUTES,
            "the DLQ is not a FIFO queue, allowed is one behind a FIFO queue, or a group's dead letters come back in"
            " any order; deploy the environment's stacks",
        ),
    ],
    ids=["visibility timeout", "no DLQ", "standard DLQ"],
)
def test_a_queue_that_is_not_as_declared_is_a_fault(
    live: dict[str, str], dead: dict[str, str] | None, fault: str
) -> None:
    """Each fault names the attribute, the allowed value and the next step."""
    assert faults(DECLARED, live, dead) == [fault]


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        ('{"deadLetterTargetArn":"a","maxReceiveCount":3}', "3"),
        ('{"deadLetterTargetArn":"a","maxReceiveCount":"6"}', "6"),
        ('{"deadLetterTargetArn":"a"}', "None"),
        ('{"maxReceiveCount":null}', "None"),
        ("[]", "None"),
        ("", "None"),
    ],
)
def test_another_max_receive_count_is_a_fault(policy: str, seen: str) -> None:
    assert faults(DECLARED, QUEUE_ATTRIBUTES | {"RedrivePolicy": policy}, DLQ_ATTRIBUTES) == [
        f"the queue's maxReceiveCount is {seen}, allowed is max_attempts (5), by which its workers know a message's"
        " last attempt; deploy the environment's stacks, or declare it so"
    ]


def test_receives_that_are_too_few_for_bundles_are_a_fault() -> None:
    """Each attempt at one of a bundle's events is a receive of the bundle."""
    bundles = QUEUE_ATTRIBUTES | {"RedrivePolicy": '{"deadLetterTargetArn":"a","maxReceiveCount":1000}'}

    assert faults(DECLARED, bundles, DLQ_ATTRIBUTES, bundle_events_max=2) == []
    assert faults(DECLARED, QUEUE_ATTRIBUTES, DLQ_ATTRIBUTES, bundle_events_max=2) == [
        "the queue's maxReceiveCount is 5, allowed is that of bundles (1000), or SQS dead-letters messages by receives"
        " that are no attempts; deploy the environment's stacks, or declare it so"
    ]


@pytest.mark.parametrize(
    "policies", [{"gaps": Gaps.WAIT}, {"gaps": Gaps.HALT}, {"poison": Poison.PARK, "gaps": Gaps.HALT}]
)
def test_a_standard_queue_is_a_fault_for_policies_that_park(policies: dict[str, Gaps | Poison]) -> None:
    """They take a missing number for a loss, and a standard queue delivers numbers out of order."""
    declared = Consumer(name="billing", **policies)  # type: ignore[arg-type]

    assert faults(declared, STANDARD_QUEUE_ATTRIBUTES, STANDARD_DLQ_ATTRIBUTES) == [
        "the queue is not a FIFO queue, allowed is one with Poison.PARK, Gaps.WAIT or Gaps.HALT: a standard queue has"
        " gaps"
        " and late messages all the time; declare Poison.SKIP and Gaps.RECORD, or use a FIFO queue"
    ]


@pytest.mark.parametrize(
    ("source_seconds", "dead_seconds", "is_allowed"),
    [
        (345_600, 1_209_600, True),
        (1_000_000, 899_999, True),
        (1_000_000, 900_000, False),
        (1_209_600, 1_209_600, False),
    ],
)
def test_w15_an_inbox_that_forgets_too_early_is_a_fault(
    source_seconds: int, dead_seconds: int, *, is_allowed: bool
) -> None:
    """It has to remember longer than a message can need: in the queue, in its DLQ, and in the queue after a redrive."""
    declared = Consumer(name="billing", inbox_retention_seconds=2_900_000)
    live = QUEUE_ATTRIBUTES | {"MessageRetentionPeriod": str(source_seconds)}

    found = faults(declared, live, DLQ_ATTRIBUTES | {"MessageRetentionPeriod": str(dead_seconds)})

    assert found == (
        []
        if is_allowed
        else [
            f"inbox_retention_seconds is 2900000, allowed is more than {2 * source_seconds + dead_seconds}, which is"
            f" 2 x the queue's MessageRetentionPeriod ({source_seconds}) + the DLQ's ({dead_seconds}): a message"
            " redriven late would be handled again; raise it in the declaration, or deploy the environment's stacks"
        ]
    )


def test_w15_a_dlq_that_may_not_be_read_counts_as_declared() -> None:
    """So its messages are kept for 14 days, and the inbox has to remember for longer than both queues keep them."""
    declared = Consumer(name="billing", inbox_retention_seconds=35 * 86_400)

    found = faults(declared, QUEUE_ATTRIBUTES | {"MessageRetentionPeriod": str(12 * 86_400)}, None)

    assert found == [
        "inbox_retention_seconds is 3024000, allowed is more than 3283200, which is 2 x the queue's"
        " MessageRetentionPeriod (1036800) + the DLQ's (1209600): a message redriven late would be handled again; raise"
        " it in the declaration, or deploy the environment's stacks"
    ]


def test_every_fault_is_reported_at_once() -> None:
    """An operator corrects four mistakes in one deployment."""
    live = {"VisibilityTimeout": "30", "MessageRetentionPeriod": "1209600"}

    found = faults(
        Consumer(name="billing", gaps=Gaps.HALT, inbox_retention_seconds=2_000_000), live, STANDARD_DLQ_ATTRIBUTES
    )

    assert [name.split(",")[0] for name in found] == [
        "the queue's VisibilityTimeout is 30",
        "the queue has no RedrivePolicy",
        "the queue is not a FIFO queue",
        "inbox_retention_seconds is 2000000",
    ]
