"""Facts about AWS that no contract test holds, and why; and the ids of all facts that were collected.

A fact is a promise or stands here: nothing is dropped silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from contract_tests.promises.promise import (
    Evidence,
    api,
    documented,
    guide,
    peer,
    recorded,
    sns_api,
    sns_guide,
    unverified,
)

_READ = "2026-11-23"
_LAMBDA = "lambda_/event_source_mapping/test_lambda_integration_sqs.py::"
_STACK = "sqs/resource_providers/test_aws_sqs_queue.py::"
_METRICS = guide("sqs-available-cloudwatch-metrics")
_HIGH_THROUGHPUT = guide("high-throughput-fifo")
_LATE = "metrics come 90 s after the traffic and later"
_NEEDS_LAMBDA = "needs a Lambda function as consumer"
_TWO_ACCOUNTS = "needs two accounts, and an emulator that enforces policies between them"

_NUMBERS = {
    "BAT": "01 02 03 04 05 06 07 08 09 11 12 13",
    "CRE": "01 02 04 05 06 07 09 10 11 12 13 14 16 17 18 19 20 21 22 23 24 25 26 27 28 43 44 45",
    "DED": "01 04 05 06 07 08 09 10 11 12 13 14 15 16 28",
    "DLQ": "01 04 05 06 07 08 09 10 11 12 13 14 15 17 18 19 20 21 22 23 24 25 40",
    "ERR": "02 03 04 05 06",
    "GRP": "01 02 03 04 05 07 08 09 10 11 12 13 15 17 18",
    "LIM": "01 02 03 04 05 06 07 08 09 11 22",
    "MET": "01 02 03 04 05 06 07",
    "MOV": "01 02 04 06 07 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 50 51",
    "ORD": "01 02 04 05 07 08",
    "PUR": "01 02 04 05 17",
    "RCV": "02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17",
    "SND": "01 02 03 04 05 06 09 10 11 12 14 15 16 17 18 20 21 37 38",
    "SNS": "01 04 05 06 07 08 09 10 11 12 14 16 17 18 19 20 24 25 26 27 28 29 30 31 32 34 35 36 37 38 39 40 42 43 44"
    " 133 134 135 136 137 138 139 140 141",
    "TAG": "01 03 04 06 18",
    "VIS": "01 02 04 05 06 07 08 09 10 11 12 13 14 15 16 17 31",
}

FACTS: tuple[str, ...] = tuple(f"{area}-{number}" for area, numbers in _NUMBERS.items() for number in numbers.split())
"""Id of every fact, sorted."""


@dataclass(frozen=True, slots=True)
class Untested:
    """One fact that is no promise.

    Args:
        fact: what AWS does, or what nobody knows of it.
        evidence: how we know.
        reason: why no test holds it.
    """

    fact: str
    evidence: tuple[Evidence, ...]
    reason: str


NOT_TESTED: Mapping[str, Untested] = {
    "BAT-11": Untested(
        "What a delay in one entry of a batch to a FIFO queue does: emulators fail the entry, or the whole batch.",
        (unverified("softwaremill/elasticmq FifoQueueTests; Inqnuam/local-aws-sqs test"),),
        "nobody recorded it, and emulators disagree",
    ),
    "CRE-19": Untested(
        "A change of attributes is seen everywhere after 60 s at most, of the retention after 15 minutes.",
        (api("SetQueueAttributes"),),
        "allows any answer meanwhile; the tests wait for effects",
    ),
    "CRE-21": Untested(
        "A deletion takes up to 60 s, and requests may succeed meanwhile; a new queue can be used after a second.",
        (
            api("DeleteQueue"),
            api("CreateQueue"),
        ),
        "allows any answer meanwhile",
    ),
    "CRE-23": Untested(
        "A queue made by CloudFormation with every property has them all.",
        (recorded(_STACK + "test_create_fifo_queue_with_all_properties", "2025-12-18"),),
        "a stack takes two minutes; STK-01 compares what our own stacks deploy",
    ),
    "CRE-24": Untested(
        "Removing properties in CloudFormation leaves scope and throughput limit, and sets 262,144 bytes.",
        (recorded(_STACK + "test_update_fifo_queue_remove_all_properties_except_queuename", "2026-01-14"),),
        "updating a stack takes three minutes, and our stacks never remove a property",
    ),
    "CRE-25": Untested(
        "Removing the name too makes a new queue with default attributes.",
        (recorded(_STACK + "test_update_fifo_queue_remove_all_properties", "2026-01-14"),),
        "updating a stack takes three minutes, and our stacks name their queues",
    ),
    "CRE-43": Untested(
        "Senders and receivers need permissions for a KMS key of one's own; SNS needs them in its policy.",
        (
            guide("sqs-key-management"),
            sns_guide("sns-key-management"),
        ),
        "no emulator here enforces a key's policy; STK-04 reads those we deploy, CRE-39 holds the attributes",
    ),
    "CRE-44": Untested(
        "GetQueueUrl with QueueOwnerAWSAccountId finds a queue of another account that grants access.",
        (api("GetQueueUrl"),),
        _TWO_ACCOUNTS,
    ),
    "CRE-45": Untested(
        "A shortened retention also deletes messages that are already there and older.",
        (api("SetQueueAttributes"),),
        "may take 15 minutes, so that any answer is allowed meanwhile",
    ),
    "DED-28": Untested(
        "The deduplication interval of a topic is five minutes at least.",
        (sns_api("Publish"),),
        "a longer one cannot be told from a late clock; SNS-95 allows three minutes more",
    ),
    "DLQ-17": Untested(
        "A queue and its DLQ are in one account and one Region.",
        (
            guide("sqs-dead-letter-queues", read=_READ),
            api("CreateQueue"),
        ),
        "AWS calls it best practice, and nobody recorded what a policy gets that names another Region",
    ),
    "DLQ-22": Untested(
        "NumberOfMessagesSent does not count what SQS moves to a DLQ.",
        (_METRICS,),
        _LATE,
    ),
    "DLQ-24": Untested(
        "A failing Lambda function takes the failed messages to the DLQ with their ids.",
        (recorded(_LAMBDA + "test_report_batch_item_failures", "2025-03-03"),),
        _NEEDS_LAMBDA + "; DLQ-01 holds the same of any consumer",
    ),
    "DLQ-25": Untested(
        "A message that a failing Lambda function takes to the DLQ keeps its message id.",
        (recorded(_LAMBDA + "test_redrive_policy_with_failing_lambda", "2025-11-25"),),
        _NEEDS_LAMBDA + "; DLQ-01 holds the same of any consumer",
    ),
    "DLQ-40": Untested(
        "Whether a maxReceiveCount given as a string is reported as a number.",
        (unverified("LocalStack reports the string; what was recorded on AWS was given as a number"),),
        "nobody recorded it; DLQ-13 holds that it is accepted",
    ),
    "ERR-04": Untested(
        "AddPermission with a label that exists is refused.",
        (recorded("test_sqs_permission_lifecycle", "2024-04-30"),),
        "seen to be accepted at times since",
    ),
    "GRP-17": Untested(
        "A group whose Lambda function fails is blocked until the visibility timeout, and then comes again.",
        (recorded(_LAMBDA + "test_failing_lambda_retries_after_visibility_timeout", "2025-11-25"),),
        _NEEDS_LAMBDA + "; GRP-01 and RCV-17 hold the same of any consumer",
    ),
    "GRP-18": Untested(
        "Only the first 120,000 messages are searched for groups that can be received.",
        (guide("avoid-backlog-with-the-same-message-group-id"),),
        "needs a backlog of 120,000 messages",
    ),
    "LIM-01": Untested(
        "A FIFO queue with 120,000 messages in flight delivers nothing more, without an error.",
        (
            api("ReceiveMessage"),
            guide("quotas-fifo"),
        ),
        "needs 120,000 messages in flight",
    ),
    "LIM-02": Untested(
        "Without high throughput: 300 calls per second and action.",
        (guide("quotas-messages"),),
        "needs load near AWS's quota",
    ),
    "LIM-03": Untested(
        "With high throughput: up to 70,000 calls per second and action, by Region.",
        (
            _HIGH_THROUGHPUT,
            guide("quotas-messages"),
        ),
        "needs load near AWS's quota",
    ),
    "LIM-04": Untested(
        "A message group takes 300 calls per second: it is in one partition.",
        (guide("partitions-and-data-distribution"),),
        "needs load near AWS's quota of one partition",
    ),
    "LIM-05": Untested(
        "A throttled call is refused as ThrottlingException or RequestThrottled, and can be repeated.",
        (
            _HIGH_THROUGHPUT,
            documented(
                "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html", _READ
            ),
        ),
        "needs a caller that AWS throttles; tests/unit holds what our own code does after each of these codes",
    ),
    "LIM-08": Untested(
        "The number of groups and of waiting messages is not limited.",
        (guide("quotas-fifo"),),
        "cannot be contradicted by a finite test",
    ),
    "LIM-11": Untested(
        "ListQueues returns 1,000 queues at most.",
        (api("ListQueues"),),
        "needs more than 1,000 queues; SLU-58 holds that pages are linked",
    ),
    "LIM-22": Untested(
        "At 120,000 messages in flight a short poll gets OverLimit, a long poll gets nothing.",
        (guide("sqs-visibility-timeout", read=_READ),),
        "needs 120,000 messages in flight; the API reference says that FIFO queues return no error [LIM-01]",
    ),
    "MET-01": Untested(
        "Sent, received, deleted and empty receives are metrics, about 90 s late.",
        (recorded("cloudwatch/test_cloudwatch.py::test_aws_sqs_metrics_created", "2026-02-26"),),
        _LATE,
    ),
    "MET-02": Untested(
        "FIFO queues have NumberOfDeduplicatedSentMessages and ApproximateNumberOfGroupsWithInflightMessages.",
        (_METRICS,),
        _LATE,
    ),
    "MET-03": Untested(
        "Repeats are counted as NumberOfDeduplicatedSentMessages.",
        (_METRICS,),
        _LATE + ", and whether repeats count as sent was not recorded",
    ),
    "MET-04": Untested(
        "In a DLQ, ApproximateAgeOfOldestMessage counts from the move.",
        (_METRICS,),
        _LATE + ", and an age has to grow first",
    ),
    "MET-05": Untested(
        "A queue without traffic for six hours has no metrics.",
        (guide("sqs-monitoring-using-cloudwatch"),),
        "takes six hours",
    ),
    "MET-06": Untested(
        "The metrics of visible, invisible and delayed messages are the queue's attributes.",
        (_METRICS,),
        "metrics come a minute late; GRP-15 holds the same of the attributes",
    ),
    "MET-07": Untested(
        "An alarm on a DLQ should use ApproximateNumberOfMessagesVisible.",
        (guide("dead-letter-queues-alarms-cloudwatch"),),
        "advice; STK-05 and STK-06 hold it of our own alarms",
    ),
    "MOV-19": Untested(
        "Whether a moved message counts its receives anew.",
        (
            guide("sqs-configure-dead-letter-queue-redrive"),
            peer("SqsStartMessageMoveTaskAsyncTests"),
        ),
        "disputed: documented as new, seen to be kept",
    ),
    "MOV-24": Untested(
        "Starting a move task needs permissions for both queues.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        "needs identities with and without permissions, and IAM to enforce them",
    ),
    "MOV-28": Untested(
        "A move task of few messages may take 30 s.",
        (peer("SqsStartMessageMoveTaskAsyncTests"),),
        "allows any wait; the tests wait for its end",
    ),
    "MOV-50": Untested(
        "A move task runs for 36 hours at most, and an account has 100 at most.",
        (api("StartMessageMoveTask"),),
        "takes 36 hours, or 100 DLQs",
    ),
    "MOV-51": Untested(
        "Cancelling a move task does not take back what was moved.",
        (api("CancelMessageMoveTask"),),
        "a task moves on for a while after the cancel [MOV-11], so nothing says what is to be where",
    ),
    "ORD-07": Untested(
        "A Lambda function gets the messages of a group in order, one batch at a time.",
        (recorded(_LAMBDA + "test_fifo_message_group_parallelism", "2025-11-25"),),
        _NEEDS_LAMBDA + "; GRP-01 and RCV-16 hold the same of any consumer",
    ),
    "ORD-08": Untested(
        "Messages of different groups may come in any order.",
        (api("SendMessage"),),
        "allows any order",
    ),
    "PUR-04": Untested(
        "A purge takes up to 60 s, and messages sent before may be received meanwhile.",
        (api("PurgeQueue"),),
        "allows any answer meanwhile",
    ),
    "PUR-17": Untested(
        "Messages that are sent while a purge runs may be deleted by it.",
        (api("PurgeQueue"),),
        "allows either",
    ),
    "RCV-09": Untested(
        "A consumer cannot ask for a message group.",
        (guide("FIFO-queues-understanding-logic"),),
        "there is no parameter to try",
    ),
    "SND-37": Untested(
        "Numbers in message attributes have 38 digits at most, and lose zeros at both ends.",
        (guide("sqs-message-metadata"),),
        "nobody recorded what becomes of which number",
    ),
    "SND-38": Untested(
        "A send with a trace header returns the MD5 of the system attributes.",
        (api("SendMessage"),),
        "nobody recorded a value to compare with",
    ),
    "SNS-133": Untested(
        "A subscription of a queue in another account has to be confirmed by that account.",
        (sns_api("Subscribe"),),
        _TWO_ACCOUNTS,
    ),
    "SNS-134": Untested(
        "A queue in another account gets messages if its policy allows the topic.",
        (sns_guide("sns-send-message-to-sqs-cross-account"),),
        _TWO_ACCOUNTS + "; SNS-44 holds it of one account",
    ),
    "SNS-135": Untested(
        "A topic that allows more than 256 KiB has 100 subscriptions at most: queues, functions, Firehose streams.",
        (sns_api("CreateTopic"),),
        "needs 100 subscriptions",
    ),
    "SNS-136": Untested(
        "A replay is Pending, In progress, Completed or Failed.",
        (sns_guide("message-archiving-and-replay-subscriber"),),
        "the status changes by itself, and nobody recorded which the attributes show when",
    ),
    "SNS-137": Untested(
        "What a queue cannot take because SQS fails is delivered again for 23 days.",
        (sns_guide("sns-message-delivery-retries"),),
        "needs SQS to fail; SNS-31 holds what becomes of what can never be delivered",
    ),
    "SNS-138": Untested(
        "Lists of topics and subscriptions come in pages of 100.",
        (
            sns_api("ListSubscriptionsByTopic"),
            sns_api("ListTopics"),
        ),
        "needs more than 100 of them",
    ),
    "SNS-139": Untested(
        "Deleting a topic may keep earlier messages from being delivered.",
        (sns_api("DeleteTopic"),),
        "allows either",
    ),
    "SNS-140": Untested(
        "A topic with tracing set to Active is a standard topic.",
        (sns_api("CreateTopic"),),
        "nobody recorded what a FIFO topic answers",
    ),
    "SNS-141": Untested(
        "Message data protection can be set for topics.",
        (sns_api("PutDataProtectionPolicy"),),
        "AWS offers it to no new customer",
    ),
    "SNS-42": Untested(
        "A topic has 100 subscriptions, an account 1,000 FIFO topics.",
        (sns_guide("sns-fifo-topics"),),
        "needs 100 subscriptions, or 1,000 topics",
    ),
    "SNS-43": Untested(
        "A topic does not deliver to a queue that was deleted and made again.",
        (unverified("a comment in LocalStack's sns/publisher.py"),),
        "a name is free again after 60 s only, and what happens then was not recorded",
    ),
    "TAG-04": Untested(
        "A tag without a value is refused.",
        (peer("SqsQueueTagsTests"),),
        "clients refuse to send it",
    ),
    "TAG-06": Untested(
        "50 tags, with keys of 128 and values of 256 characters, are recommended.",
        (guide("quotas-queues"),),
        "AWS does not enforce the number; the rate is a quota of the account",
    ),
    "TAG-18": Untested(
        "Tagging a queue at its creation needs the permissions to create and to tag.",
        (api("CreateQueue"),),
        "needs identities with and without permissions, and IAM to enforce them",
    ),
    "VIS-12": Untested(
        "A receive with a visibility timeout of 0 may bring a message twice in one answer.",
        (guide("sqs-visibility-timeout"),),
        "allows either",
    ),
    "VIS-15": Untested(
        "A message may come again later than its visibility timeout says.",
        (peer("SqsReceiveMessageAsyncTests"),),
        "allows any delay; the tests wait for it",
    ),
    "VIS-31": Untested(
        "Whether an earlier receipt handle changes the visibility of a message that was received again.",
        (unverified("by VIS-05, which is about deletes"),),
        "nobody recorded it",
    ),
}
"""Id of a fact that is no promise -> the fact and why; sorted."""
