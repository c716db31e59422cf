"""Every AWS number Sluice relies on, once, with where it was read.

Read on 2026-11-20. Sizes in bytes, times in seconds; a `_max` or `_min` is itself allowed.
"""

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-fifo.html
QUEUE_NAME_CHARACTERS_MAX = 80  # `.fifo` counts
FIFO_SUFFIX = ".fifo"

# https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html
TOPIC_NAME_CHARACTERS_MAX = 256  # `.fifo` counts

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html
VISIBILITY_TIMEOUT_SECONDS_MAX = 43_200
MESSAGE_RETENTION_SECONDS = 345_600  # unless a queue says otherwise
MESSAGE_RETENTION_SECONDS_MIN = 60
MESSAGE_RETENTION_SECONDS_MAX = 1_209_600
MAX_RECEIVE_COUNT_MIN = 1
MAX_RECEIVE_COUNT_MAX = 1_000
# Of it: what all events of a bundle may cost together (docs/decisions/0024-bundles.md); the other half is for receives
# without an attempt, as when the database is away. An event that is tried once costs two receives at most.
BUNDLE_RECEIVES_MAX = MAX_RECEIVE_COUNT_MAX // 2
BUNDLE_EVENTS_MAX = BUNDLE_RECEIVES_MAX // 2

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_PurgeQueue.html
PURGE_SECONDS_MAX = 60

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
RECEIVE_MESSAGES_MAX = 10

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
DEDUPLICATION_WINDOW_SECONDS = 300

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
SEQUENCE_NUMBER_DIGITS_MAX = 39  # documented as 128 bits

# https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html
PUBLISH_BATCH_ENTRIES_MAX = 10

# https://docs.aws.amazon.com/sns/latest/dg/large-message-payloads.html (read 2026-11-23): of a topic that does not set
# MaximumMessageSize, for a message and for a whole batch. A topic that allows more has so many subscriptions at most.
PUBLISH_BYTES_MAX = 262_144
LARGE_MESSAGE_SUBSCRIPTIONS_MAX = 100

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html
FIFO_WINDOW_MESSAGES = 120_000  # only so many are searched for groups with nothing in flight

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/avoid-backlog-with-the-same-message-group-id.html
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html (of a standard queue)
IN_FLIGHT_MESSAGES_MAX = 120_000

# https://docs.aws.amazon.com/sns/latest/dg/subscription-filter-policy-constraints.html
FILTER_POLICY_ATTRIBUTES_MAX = 5
FILTER_POLICY_COMBINATIONS_MAX = 150
FILTER_POLICY_BYTES_MAX = 262_144
FILTER_POLICY_WILDCARDS_MAX = 3  # in one pattern
FILTER_POLICY_WILDCARD_POINTS_MAX = 100  # of a whole policy

# https://docs.aws.amazon.com/sns/latest/dg/message-archiving-and-replay-topic-owner.html
ARCHIVE_DAYS_MAX = 365

# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-quotas.html
TASKS_PER_SERVICE_MAX = 5_000

# https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-quotas.html (read 2026-11-27)
POLICIES_PER_SERVICE_MAX = 50
STEPS_PER_POLICY_MAX = 20

# https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html
STOP_TIMEOUT_SECONDS_MAX = 120

# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html (read 2026-11-27): a zip package unzipped, and
# the environment variables of a function, names and values; API_CreateFunction has the length of its name
FUNCTION_PACKAGE_BYTES_MAX = 250 * 1_024 * 1_024
FUNCTION_VARIABLES_BYTES_MAX = 4_096
FUNCTION_NAME_CHARACTERS_MAX = 64

# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27): invocations at once of an
# event source mapping of SQS, at the beginning, more a minute, and at most; and of one provisioned poller
MAPPING_INVOCATIONS_FIRST, MAPPING_INVOCATIONS_PER_MINUTE, MAPPING_INVOCATIONS_MAX = 5, 300, 1_250
POLLER_INVOCATIONS, POLLERS_INVOCATIONS_PER_MINUTE = 10, 1_000

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
# An idle queue's metrics come up to 15 minutes late; then a task has to start. Our bound, not AWS's.
WAKE_FROM_ZERO_SECONDS = 1_200

# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
FARGATE_MEMORY_MIB = {
    256: (512, 1_024, 2_048),
    512: tuple(range(1_024, 4_097, 1_024)),
    1_024: tuple(range(2_048, 8_193, 1_024)),
    2_048: tuple(range(4_096, 16_385, 1_024)),
    4_096: tuple(range(8_192, 30_721, 1_024)),
    8_192: tuple(range(16_384, 61_441, 4_096)),
    16_384: tuple(range(32_768, 122_881, 8_192)),
}  # CPU units -> memory a task may have

# https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_ServerlessV2ScalingConfiguration.html,
# https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_CreateDBCluster.html (read 2026-11-23); the first
# version of the oldest line here that pauses:
# https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/aurora-serverless-v2.how-it-works.html
AURORA_ACUS_MAX = 256
AURORA_PAUSE_SECONDS_MIN, AURORA_PAUSE_SECONDS_MAX = 300, 86_400
AURORA_BACKUP_DAYS_MAX = 35
AURORA_VERSION_MIN = (16, 3)
# Our bound, a century, and not AWS's.
VAULT_DAYS_MAX = 36_500
# BackupVaultName and BackupPlanName: https://docs.aws.amazon.com/aws-backup/latest/devguide/API_CreateBackupVault.html
# and API_BackupPlanInput.html, as botocore's model has them (read 2026-11-26)
VAULT_NAME_CHARACTERS_MAX = 50
# max_connections of an instance by its most capacity; with 0 or 0.5 ACUs at least, 2,000 at most:
# https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/aurora-serverless-v2.setting-capacity.html#aurora-serverless-v2.max-connections
# and https://repost.aws/articles/ARm5e6RHE3R4mnHS2S-UZUwA (read 2026-11-26)
AURORA_CONNECTIONS = {1: 189, 4: 823, 8: 1_669, 16: 3_360, 32: 5_000}  # ACUs -> connections
AURORA_SMALL_ACUS, AURORA_SMALL_CONNECTIONS_MAX = 0.5, 2_000

# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180),
    *(365, 400, 545, 731, 1_096, 1_827, 2_192, 2_557, 2_922, 3_288, 3_653),
)

# https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html
VPC_PREFIX_LENGTH_MIN = 16
ZONES_MAX = 3
"""Ours: every region has at least three."""

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
WAIT_SECONDS_MAX = 20

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
# https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html: what MaximumMessageSize may be, of queues and topics.
MESSAGE_BYTES_MIN = 1_024
MESSAGE_BYTES_MAX = 1_048_576

# https://docs.aws.amazon.com/tag-editor/latest/userguide/tagging.html (`aws:…` does not count)
TAGS_MAX = 50

# https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
STACK_RESOURCES_MAX, STACK_OUTPUTS_MAX = 500, 200

# https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html (periods under an hour)
ALARM_SECONDS_MAX = 86_400

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
MESSAGE_ATTRIBUTES_MAX = 10

# https://docs.aws.amazon.com/sns/latest/dg/fifo-high-throughput.html (FifoThroughputScope MessageGroup; an account's)
TOPIC_MESSAGES_PER_SECOND = {"us-east-1": 30_000, "us-west-2": 9_000, "eu-west-1": 9_000}
TOPIC_MESSAGES_PER_SECOND_ELSEWHERE = 3_000  # documented as "fewer"; what a topic of scope Topic has, everywhere
# AWS's announcement of high throughput, 2025-01-21, tells it of the time before; no page promises a group more since.
TOPIC_GROUP_MESSAGES_PER_SECOND = 300

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html (high throughput; a
# queue's, for each action)
QUEUE_CALLS_PER_SECOND = {
    **dict.fromkeys(("us-east-1", "us-west-2", "eu-west-1"), 70_000),
    **dict.fromkeys(("us-east-2", "eu-central-1"), 19_000),
}
QUEUE_CALLS_PER_SECOND_ELSEWHERE = 2_400  # of the regions that are named in no other row
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/partitions-and-data-distribution.html
GROUP_CALLS_PER_SECOND = 300  # all messages of a group are in one partition

# https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html (read 2026-11-27)
FUNCTION_MEMORY_MB_MIN, FUNCTION_MEMORY_MB_MAX = 128, 10_240
FUNCTION_TIMEOUT_SECONDS_MAX = 900
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html (read 2026-11-27): of a FIFO queue, and how
# many timeouts of its function a queue's visibility timeout has to be, so that a throttled batch can be tried again.
FUNCTION_FIFO_BATCH_MAX = 10
FUNCTION_TIMEOUTS_HIDDEN = 6
# https://docs.aws.amazon.com/lambda/latest/api/API_ScalingConfig.html (read 2026-11-27)
MAPPING_CONCURRENCY_MIN, MAPPING_CONCURRENCY_MAX = 2, 1_000
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html and CloudFormation's and CDK's pages of
# ProvisionedPollerConfig, of SQS (read 2026-11-27). The API takes up to 10,000 by now (its page, and botocore 1.44.5);
# the stacks are CloudFormation's, and the lower maximum is safe.
POLLERS_MIN, MINIMUM_POLLERS_MAX, MAXIMUM_POLLERS_MAX = 2, 200, 2_000
