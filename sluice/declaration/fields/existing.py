"""The declaration of queues and keys that an environment uses and that somebody else makes.

Their owner also writes their policies; `sluice env ENV --policies` prints the statements that he has to add. The stacks
attach nothing to them, and `cdk destroy` leaves them as they are.
"""

from sluice.declaration.validation import PENDING, declaration_class, matching, require
from sluice.limits import FIFO_SUFFIX

KEY_ARN = (rf"arn:aws:kms:[a-z0-9-]+:[0-9]{{12}}:key/(mrk-)?[0-9a-f-]+|{PENDING}", "the whole ARN of a KMS key")
_QUEUE = (r"arn:aws:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,80}(\.fifo)?", "the ARN of an SQS queue")


@declaration_class
class ExistingQueue:
    """A queue and its DLQ that somebody else looks after, in the environment's account and region.

    Visibility timeout, receives, retention and redrive policy are as its owner set them, and the consumer declares the
    same values: its worker compares them before it starts.
    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
    (read 2026-11-23).

    Args:
        arn: the queue.
        dead_letter_queue_arn: its DLQ.
        key_arn: the KMS key both are encrypted with, which workers have to use; None: SQS holds it.
    """

    arn: str = matching(*_QUEUE)
    dead_letter_queue_arn: str = matching(*_QUEUE)
    key_arn: str | None = matching(*KEY_ARN, default=None)

    @property
    def is_fifo(self) -> bool:
        """Return whether the queue is FIFO."""
        return self.arn.endswith(FIFO_SUFFIX)

    def __post_init__(self) -> None:
        place, _, name = self.arn.rpartition(":")
        dead_letter_place, _, dead_letter_name = self.dead_letter_queue_arn.rpartition(":")
        is_alike = dead_letter_name.endswith(FIFO_SUFFIX) == self.is_fifo
        require(
            self,
            dead_letter_place == place and dead_letter_name != name and is_alike,
            field="dead_letter_queue_arn",
            allowed=f"another {'FIFO' if self.is_fifo else 'standard'} queue in {place}: SQS takes no other as the DLQ"
            f" of {name}",
        )


@declaration_class
class ExistingKeys:
    """The two KMS keys of an environment with `Encryption.CMK`, where somebody else looks after them.

    Both may be the same key, of any account. A key that the same CDK app makes is given by its `key_arn`, which is a
    token then. Its policy is up to the app too: `sluice.declaration.policies.for_others` returns the statements.

    Args:
        topic_arn: encrypts the topics.
        queues_arn: encrypts the queues.
    """

    topic_arn: str = matching(*KEY_ARN)
    queues_arn: str = matching(*KEY_ARN)
