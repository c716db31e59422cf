"""The declaration of topics: those that the stacks make, and existing ones.

Where an environment has several topics, each consumer names its topic, whatever their order. A subscriber of another
account makes its subscription itself: SNS needs no confirmation of a subscription that the queue's owner makes.
AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-send-message-to-sqs-cross-account.html (read 2026-11-23).
"""

import re

from sluice.declaration.fields.existing import KEY_ARN
from sluice.declaration.validation import between, declaration_class, matching, require, satisfying
from sluice.limits import BUNDLE_EVENTS_MAX, FIFO_SUFFIX

# Without hyphens, or `dev-eu` with consumer `billing` would name its queue as `dev` with `eu-billing` does.
LABEL = (r"[a-z][a-z0-9]{0,31}", "up to 32 lower-case letters and digits, a letter first")
RELAY_TASKS = 2
"""Tasks of each topic's relay: one leads, one stands by."""
RELAY_KEEP_DAYS = 7
"""How long relays keep sent messages, after which they delete them."""
RELAY_CONNECTIONS = 4
"""The most connections of one relay to the database: for its work, for notifications of commits, for measuring, and one
that replaces a broken one."""


def _accounts() -> tuple[str, ...]:
    """Return a dataclass field for a tuple of account numbers, each once."""
    accounts: tuple[str, ...] = satisfying(
        lambda seen: len(set(seen)) == len(seen) and all(re.fullmatch(r"[0-9]{12}", account) for account in seen),
        "accounts of twelve digits, each once",
        default=(),
    )
    return accounts


def _bundle_events() -> int:
    """Return a dataclass field for the most events of one message."""
    count: int = between(1, BUNDLE_EVENTS_MAX, "events", default=1)
    return count


@declaration_class
class Topic:
    """A FIFO topic that the environment makes.

    Args:
        name: its own name, without application, environment and `.fifo`.
        producer_accounts: other accounts whose roles may publish to it. Each group has one producer all the same.
        subscriber_accounts: other accounts that may subscribe SQS queues of theirs in the environment's region.
        bundle_events_max: events of one group that may travel in one message, when `sluice outbox bundles on` has
            switched that on. With more than 1 each consumer's queue has a maxReceiveCount of 1,000, and its worker
            counts the attempts at each event.
        foreign_subscribers_read_bundles: subscribers that this environment does not declare can read such messages.
    """

    name: str = matching(*LABEL, default="events")
    producer_accounts: tuple[str, ...] = _accounts()
    subscriber_accounts: tuple[str, ...] = _accounts()
    bundle_events_max: int = _bundle_events()
    foreign_subscribers_read_bundles: bool = False

    def __post_init__(self) -> None:
        _check_bundles(self, has_foreign_subscribers=bool(self.subscriber_accounts))

    @property
    def has_other_producers(self) -> bool:
        """Return whether producers without a relay may publish to the topic; they may send attributes of any type."""
        return bool(self.producer_accounts)


@declaration_class
class ExistingTopic:
    """A FIFO topic that somebody else looks after, in the environment's region and in any account.

    `sluice env ENV --policies` prints what its owner has to allow. Consumers name it by the last part of its ARN,
    without `.fifo`.

    Args:
        arn: the topic.
        key_arn: the KMS key it is encrypted with, which a relay has to use; None: it has none.
        relay: whether services of this environment publish to it, and its relay does so from their outbox.
        bundle_events_max: as of `Topic`. Without `relay`: what its owner declares, whose relay sends bundles.
        foreign_subscribers_read_bundles: as of `Topic`.
    """

    arn: str = matching(
        r"arn:aws:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,251}\.fifo",
        "the ARN of an SNS FIFO topic, which ends in '.fifo'",
    )
    key_arn: str | None = matching(*KEY_ARN, default=None)
    relay: bool = False
    bundle_events_max: int = _bundle_events()
    foreign_subscribers_read_bundles: bool = False

    def __post_init__(self) -> None:
        _check_bundles(self, has_foreign_subscribers=self.relay)

    @property
    def has_other_producers(self) -> bool:
        """Return True: the owner's producers publish to the topic, and may send attributes of any type."""
        return True

    @property
    def name(self) -> str:
        """Return the name that consumers give as their `topic`."""
        return self.arn.rpartition(":")[2].removesuffix(FIFO_SUFFIX)

    @property
    def account(self) -> str:
        """Return the account that the topic is in."""
        return self.arn.split(":")[4]


def _check_bundles(topic: Topic | ExistingTopic, *, has_foreign_subscribers: bool) -> None:
    """Refuse bundles where subscribers that nobody declares here may get them, unless they can read them."""
    require(
        topic,
        topic.bundle_events_max == 1 or topic.foreign_subscribers_read_bundles or not has_foreign_subscribers,
        field="bundle_events_max",
        allowed="1 with subscribers that the environment does not declare; or foreign_subscribers_read_bundles=True, if"
        " all of them can read bundles",
    )
