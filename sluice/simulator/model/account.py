"""One account and region: its SQS, its SNS, which delivers into that SQS, and its mappings, which receive from it."""

import uuid
from collections.abc import Mapping
from typing import Any

from sluice.simulator.model.functions import Functions
from sluice.simulator.model.operation import ModelOperation
from sluice.simulator.model.queues.sqs import Sqs
from sluice.simulator.model.refusal import AwsRefusal
from sluice.simulator.model.topics.sns import Sns


class Account:
    """The state of SQS, SNS and Lambda's event source mappings in one account and region.

    Args:
        region: the region in every ARN.
        id_: the account's number, twelve digits.
        base_url: the beginning of queue URLs, before the account's number.
        seed: determines all generated ids, so a program that runs twice gets the same answers.
    """

    def __init__(
        self,
        *,
        region: str = "us-east-1",
        id_: str = "000000000000",
        base_url: str = "https://sqs.us-east-1.amazonaws.com",
        seed: int = 0,
    ) -> None:
        self._seed, self._ids = seed, 0
        self.sqs = Sqs(base_url=f"{base_url}/{id_}", arn_prefix=f"arn:aws:sqs:{region}:{id_}:", new_id=self._new_id)
        self.sns = Sns(self.sqs.queues, arn_prefix=f"arn:aws:sns:{region}:{id_}:", new_id=self._new_id)
        self.functions = Functions(
            self._call_of_mapping, self.sqs.queues, arn_prefix=f"arn:aws:lambda:{region}:{id_}:", new_id=self._new_id
        )
        self._operations: Mapping[str, Mapping[str, ModelOperation]] = {
            "sqs": self.sqs.operations,
            "sns": self.sns.operations,
            "lambda": self.functions.operations,
        }

    def _new_id(self) -> str:
        self._ids += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed} {self._ids}"))

    def call(self, service: str, operation: str, params: dict[str, Any], now: float) -> dict[str, Any] | AwsRefusal:
        """Answer one call as AWS would at the instant `now`, in seconds; instants must never run backwards.

        A receive never waits. For a long poll, the caller receives again at `next_change_at`.
        """
        operations = self._operations[service]
        if operation not in operations:
            return AwsRefusal("UnsupportedOperation", f"{operation} is not modelled.")
        self.sqs.settle(now)
        try:
            return operations[operation](params, now)
        except AwsRefusal as refusal:
            return refusal

    def next_change_at(self, now: float) -> float | None:
        """Return the next instant at which the state changes without a call; None if it never does."""
        return min([*self.sqs.changes_after(now), *self.functions.changes_after(now)], default=None)

    def _call_of_mapping(self, operation: str, params: dict[str, Any], now: float) -> Mapping[str, Any]:
        """Return SQS's answer to a call of an event source mapping; an empty one if SQS refuses."""
        answered = self.call("sqs", operation, params, now)
        return {} if isinstance(answered, AwsRefusal) else answered
