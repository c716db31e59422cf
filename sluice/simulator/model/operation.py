"""The types of an operation of SQS or SNS: its parameters and its answer, in AWS's own shape and spelling."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

type Params = Mapping[str, Any]
type AnswerFields = dict[str, Any]
type ModelOperation = Callable[[Params, float], AnswerFields]
"""Takes the parameters and the instant of a call, and returns its answer; raises `AwsRefusal` if AWS would refuse."""


def as_spelled(attributes: Mapping[str, str], booleans: Collection[str]) -> dict[str, str]:
    """Return attributes as AWS stores them: it accepts `True` and returns `true`.

    Recorded of queues (LocalStack's test_sqs_fifo_same_dedup_id_different_message_groups) and of subscriptions
    (test_create_subscriptions_with_attributes, 2025-10-06), not of topics.

    Args:
        attributes: as a caller gave them.
        booleans: the names of those that are true or false.
    """
    return {
        name: value.lower() if name in booleans and value.lower() in ("true", "false") else value
        for name, value in attributes.items()
    }
