"""An operation of SQS or SNS: what it is given and answers, in AWS's own shape and spelling."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

type Params = Mapping[str, Any]
type AnswerFields = dict[str, Any]
type ModelOperation = Callable[[Params, float], AnswerFields]
"""Takes parameters and the instant; raises `Refusal` where AWS would refuse."""


def as_spelled(attributes: Mapping[str, str], booleans: Collection[str]) -> dict[str, str]:
    """Return attributes in AWS's own spelling: it takes `True` where it gives back `true`.

    Recorded of queues (LocalStack's test_sqs_fifo_same_dedup_id_different_message_groups) and of subscriptions
    (test_create_subscriptions_with_attributes, 2025-10-06), not of topics.
    """
    return {
        name: value.lower() if name in booleans and value.lower() in ("true", "false") else value
        for name, value in attributes.items()
    }
