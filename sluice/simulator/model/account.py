"""One account and region: its SQS and its SNS, which delivers into the queues of that SQS."""

import uuid
from typing import Any

from sluice.simulator.model.queues.sqs import Sqs
from sluice.simulator.model.refusal import AwsRefusal
from sluice.simulator.model.topics.sns import Sns


class Account:
    """The state of SQS and SNS in one account and region.

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

    def _new_id(self) -> str:
        self._ids += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed} {self._ids}"))

    def call(self, service: str, operation: str, params: dict[str, Any], now: float) -> dict[str, Any] | AwsRefusal:
        """Answer one call as AWS would at the instant `now`, in seconds; instants must never run backwards.

        A receive never waits. For a long poll, the caller receives again at `next_change_at`.
        """
        operations = (self.sqs if service == "sqs" else self.sns).operations
        if operation not in operations:
            return AwsRefusal("UnsupportedOperation", f"{operation} is not modelled.")
        self.sqs.settle(now)
        try:
            return operations[operation](params, now)
        except AwsRefusal as refusal:
            return refusal

    def next_change_at(self, now: float) -> float | None:
        """Return the next instant at which the state changes without a call; None if it never does."""
        return min(self.sqs.changes_after(now), default=None)
