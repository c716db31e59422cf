"""The declaration of a consumer whose handlers run in AWS Lambda instead of an ECS service.

AWS: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html (visibility timeout, batch size of a FIFO
queue), https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (concurrency, provisioned pollers),
https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html (memory, timeout),
https://repost.aws/knowledge-center/lambda-sqs-scaling (a mapping does not account for reserved concurrency),
https://docs.aws.amazon.com/lambda/latest/api/API_ScalingConfig.html and API_ProvisionedPollerConfig.html
(read 2026-11-27).
"""

from sluice import limits
from sluice.declaration.validation import between, declaration_class, matching, require, satisfying

ENTRY_POINT = "sluice.cli.services.function.handle"
"""The handler of a deployed Lambda function. It reads the same variables as a worker in an ECS task. It
calls GetQueueUrl, GetQueueAttributes, ChangeMessageVisibility and DeleteMessage of the consumer's queue, and
GetQueueUrl and SendMessage of its DLQ."""
SCHEDULED_EVENT = {"sluice": "maintenance"}
"""The event that a schedule invokes the function with: it handles parked messages whose turn has come, and forgets old
groups. See `Consumer.maintenance_minutes`."""

CONNECTIONS = 2
"""Connections of one invocation to the inbox's database: one for its handler, one that counts and measures."""
RECEIVES_OF_AN_ATTEMPT = 8
"""The least receives of a queue for each event of a batch and each of its attempts. Half of them are for receives
without an attempt, one is the attempt, and three are for attempts before it that came to no end."""


@declaration_class
class Lambda:
    """Run a consumer's handlers in a Lambda function, which AWS invokes with up to ten messages of the queue at a time.

    Args:
        memory_mb: memory of the function; its share of a processor grows with it.
        timeout_seconds: how long one invocation may take for all messages of its batch.
        batch_size: messages of one invocation; of a FIFO queue they may be of several groups. An invocation handles one
            after the other.
        maximum_concurrency: invocations at once that AWS begins for this queue at most; None leaves it to AWS.
        pollers_min: provisioned pollers that always run; None means that AWS starts and ends pollers by itself.
        pollers_max: provisioned pollers at most; together with `pollers_min`.
        reserved_concurrency: invocations at once that are kept for this function alone, and its limit: more than the
            queue has, because the schedule has one, too. None is none.
        receives_max: the queue's maxReceiveCount, by which SQS itself dead-letters what no invocation ever came to an
            end with. `max_attempts` counts failures of the handler, in the inbox; a throttled, crashed or killed
            invocation is a receive and no attempt.
        package: a folder of the project with the locked packages and the handlers, which the stacks zip for ARM
            processors; None: the function runs the image that tasks have.
        entry_point: a function of your own in place of Sluice's, made by `make_handler` of `function_handler`: for
            handlers of Django's ORM, another engine, or hooks. None is Sluice's.
    """

    memory_mb: int = between(limits.FUNCTION_MEMORY_MB_MIN, limits.FUNCTION_MEMORY_MB_MAX, "MB", default=512)
    timeout_seconds: int = between(1, limits.FUNCTION_TIMEOUT_SECONDS_MAX, "seconds", default=10)
    batch_size: int = between(1, limits.FUNCTION_FIFO_BATCH_MAX, "messages", default=1)
    maximum_concurrency: int | None = between(
        limits.MAPPING_CONCURRENCY_MIN, limits.MAPPING_CONCURRENCY_MAX, "invocations, or None", default=None
    )
    pollers_min: int | None = between(
        limits.POLLERS_MIN, limits.MINIMUM_POLLERS_MAX, "provisioned pollers, or None", default=None
    )
    pollers_max: int | None = between(
        limits.POLLERS_MIN, limits.MAXIMUM_POLLERS_MAX, "provisioned pollers, or None", default=None
    )
    reserved_concurrency: int | None = satisfying(
        lambda seen: seen >= 1, "1 or more invocations, or None: with 0 none is ever begun", default=None
    )
    receives_max: int = between(
        limits.MAX_RECEIVE_COUNT_MIN, limits.MAX_RECEIVE_COUNT_MAX, "receives", default=limits.MAX_RECEIVE_COUNT_MAX
    )

    package: str | None = satisfying(
        lambda seen: seen and not seen.startswith("/") and ".." not in seen.split("/"),
        "a folder within the project, such as 'build/function', or None",
        default=None,
    )
    entry_point: str | None = matching(
        r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+",
        "a module and its function, such as 'shop.function.handle', or None",
        default=None,
    )

    @property
    def handler(self) -> str:
        """Return the module and function that Lambda calls, in the form `module.function`."""
        return self.entry_point or ENTRY_POINT

    @property
    def concurrency_max(self) -> int:
        """Return how many invocations of the function may run at once: the lowest of all bounds."""
        bounds = (
            self.maximum_concurrency,
            None if self.pollers_max is None else self.pollers_max * limits.POLLER_INVOCATIONS,
            limits.MAPPING_INVOCATIONS_MAX if self.pollers_max is None else None,
        )
        return min(bound for bound in bounds if bound is not None)

    def __post_init__(self) -> None:
        require(
            self,
            (self.pollers_min is None) == (self.pollers_max is None),
            field="pollers_max",
            allowed="None without pollers_min, and a number with it",
        )
        require(
            self,
            self.pollers_min is None or self.pollers_max is None or self.pollers_min <= self.pollers_max,
            field="pollers_min",
            allowed=f"at most pollers_max ({self.pollers_max})",
        )
        require(
            self,
            self.maximum_concurrency is None or self.pollers_max is None,
            field="maximum_concurrency",
            allowed="None with provisioned pollers: AWS takes one of the two; set pollers_max",
        )
        require(
            self,
            self.reserved_concurrency is None or self.reserved_concurrency > self.concurrency_max,
            field="reserved_concurrency",
            allowed=(
                f"more than the invocations that its queue has at once ({self.concurrency_max}), or they are throttled;"
                " or None; lower maximum_concurrency or pollers_max"
            ),
        )
