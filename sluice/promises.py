"""Every promise Sluice relies on: what is promised, by whom, how we know, and which saboteur breaks it.

The contract tests carry the ids (`@promise("GRP-01")`); this is the only place with evidence. Ids with a fact behind
them are the fact's; `SLU-nn` are Sluice's own compositions of several. `docs/promises.md` is generated from here.
"""

from dataclasses import dataclass
from enum import StrEnum

_GUIDE = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
_API = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/"
_SNS_GUIDE = "https://docs.aws.amazon.com/sns/latest/dg/"
_LS = "LocalStack tests/aws/services/"


class Promiser(StrEnum):
    """Who keeps the promise."""

    SERVICE = "SQS and SNS"
    STACK = "Sluice's stacks"
    RUNTIME = "Sluice's runtime"


class Grade(StrEnum):
    """How strong the evidence is that AWS itself behaves so.

    RECORDED: a response recorded from AWS, dated. OLD: asserted on AWS by a test without a date. REPORTED: AWS output
    quoted by users. DOCUMENTED: AWS documentation only. OPEN: our inference; nobody recorded it.
    """

    RECORDED = "recorded"
    OLD = "old"
    REPORTED = "reported"
    DOCUMENTED = "documented"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a promise was read or seen. `date` is of the recording, or of the reading for documentation."""

    grade: Grade
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise.

    Args:
        id: stable; the contract test's marker.
        area: heading it stands under.
        statement: one sentence that a test can contradict.
        evidence: strongest first.
        saboteurs: names in `wire.saboteurs`; each one alone turns the promise's test red.
        promiser: who keeps it.
    """

    id: str
    area: str
    statement: str
    evidence: tuple[Evidence, ...]
    saboteurs: tuple[str, ...]
    promiser: Promiser = Promiser.SERVICE


def _recorded(test: str, date: str) -> Evidence:
    return Evidence(Grade.RECORDED, _LS + test, date)


def _old(test: str) -> Evidence:
    return Evidence(Grade.OLD, _LS + test, "undated, before 2024-04")


def _documented(page: str) -> Evidence:
    return Evidence(Grade.DOCUMENTED, page, "2026-11-20")


_BLOCKING = "Group blocking"
_DEDUP = "Deduplication"
_ORDER = "Order"
_VISIBILITY = "Visibility"
_SEND = "Sending"
_PURGE = "Purge"
_DLQ = "Dead-letter queue"
_MOVE = "Move task"
_FANOUT = "Fan-out"
_DEPLOYMENT = "Deployment"

PROMISES: dict[str, Promise] = {
    promise.id: promise
    for promise in (
        # Group blocking opens the run.
        Promise(
            "GRP-01",
            _BLOCKING,
            "While a message of a group is in flight, no other message of that group is delivered to anyone.",
            (
                _old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
                _documented(_GUIDE + "FIFO-queues-understanding-logic.html"),
            ),
            ("leak-group",),
        ),
        Promise(
            "SLU-01",
            _BLOCKING,
            "While one group is blocked, messages of other groups are delivered.",
            (
                _old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
                _documented(_GUIDE + "FIFO-queues-understanding-logic.html"),
            ),
            ("withhold-later",),
        ),
        Promise(
            "GRP-04",
            _BLOCKING,
            "A new message sent to a blocked group does not unblock it.",
            (_old("sqs/test_sqs.py::test_fifo_message_group_visibility"),),
            ("leak-group",),
        ),
        Promise(
            "GRP-05",
            _BLOCKING,
            "Deleting the only message in flight releases its group at once, also for a consumer already long-polling.",
            (_old("sqs/test_sqs.py::test_fifo_message_group_visibility"),),
            ("ignore-delete", "withhold-later"),
        ),
        Promise(
            "GRP-02",
            _BLOCKING,
            "When the messages in flight of a group expire, all the remaining messages of the group are delivered, in order.",
            (_old("sqs/test_sqs.py::test_fifo_receive_message_visibility_timeout_shared_in_group"),),
            ("stretch-visibility", "reverse-batch"),
        ),
        Promise(
            "VIS-11",
            _BLOCKING,
            "A visibility timeout changed to 0 releases the message, and with it the group, at once.",
            (_old("sqs/test_sqs.py::test_receive_terminate_visibility_timeout"),),
            ("ignore-visibility-change",),
        ),
        Promise(
            "GRP-13",
            _BLOCKING,
            "A long-invisible message of one group does not delay the redelivery of another group's.",
            (_documented(_GUIDE + "FIFO-queues-understanding-logic.html"),),
            ("withhold-later",),
        ),
        Promise(
            "GRP-10",
            _BLOCKING,
            "Nothing behind an invisible message of a group is delivered: of three in flight with the second extended, only the first comes again.",
            (
                _recorded(
                    "sqs/test_sqs.py::test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"
                ),
            ),
            ("ignore-visibility-change",),
        ),
        Promise(
            "SND-20",
            _BLOCKING,
            "A standard queue accepts a message group id and does not block the group (comparison).",
            (
                _recorded("sqs/test_sqs.py::test_fair_queue_with_message_group_id", "2025-08-18"),
                _documented(_GUIDE + "sqs-fair-queues.html"),
            ),
            ("withhold-later",),
        ),
        # Deduplication.
        Promise(
            "DED-01",
            _DEDUP,
            "A second send with the same deduplication id inside the window is accepted and not delivered, even after the first was received and deleted.",
            (_recorded("sqs/test_sqs.py::test_fifo_deduplication_arrives_once_after_delete", "2024-04-30"),),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-08",
            _DEDUP,
            "After the window the same deduplication id is a new message; a repeat inside it does not extend it.",
            (
                _recorded("sqs/test_sqs.py::test_deduplication_interval", "2024-05-29"),
                _documented(_GUIDE + "using-messagededuplicationid-property.html"),
            ),
            ("swallow-repeats", "forget-deduplication"),
        ),
        Promise(
            "RCV-05",
            _DEDUP,
            "With content-based deduplication the deduplication id is the SHA-256 of the body, and the same body is one message.",
            (
                _recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),
                _documented(_GUIDE + "FIFO-queues-exactly-once-processing.html"),
            ),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-10",
            _DEDUP,
            "Content-based deduplication looks at the body only: other attributes do not make another message.",
            (_documented(_API + "API_SendMessage.html"),),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-11",
            _DEDUP,
            "An explicit deduplication id overrides the content: one body with two ids is two messages.",
            (_documented(_API + "API_SendMessage.html"),),
            ("swallow-bodies",),
        ),
        Promise(
            "SLU-02",
            _DEDUP,
            "With DeduplicationScope `queue`, one deduplication id in two groups is one message.",
            (_documented(_API + "API_CreateQueue.html"),),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-04",
            _DEDUP,
            "With DeduplicationScope `messageGroup`, one deduplication id in two groups is two messages, and in one group one.",
            (_recorded("sqs/test_sqs.py::test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
            ("swallow-repeats", "forget-deduplication"),
        ),
        Promise(
            "SLU-03",
            _DEDUP,
            "With DeduplicationScope `messageGroup`, sends to groups A, B and A again with one id make two messages.",
            (_recorded("sqs/test_sqs.py::test_fifo_high_throughput_ordering", "2024-04-30"),),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-09",
            _DEDUP,
            "A repeated send returns the message id of the first, and the first body is delivered.",
            (_documented(_GUIDE + "FIFO-queues-exactly-once-processing.html"),),
            ("forget-deduplication",),
        ),
        Promise(
            "DED-14",
            _DEDUP,
            "Purging a queue forgets its deduplication ids.",
            (_old("sqs/test_sqs.py::test_purge_queue_clears_fifo_deduplication_cache"),),
            ("swallow-repeats",),
        ),
        # Order.
        Promise(
            "RCV-16",
            _ORDER,
            "Received one at a time and deleted, the messages of a group come in the order they were sent.",
            (_old("sqs/test_sqs.py::test_fifo_queue_send_multiple_messages_multiple_single_receives"),),
            ("swap-bodies",),
        ),
        Promise(
            "RCV-08",
            _ORDER,
            "One receive fills up from one group, in order, before it takes from the next.",
            (
                _old("sqs/test_sqs.py::test_fifo_receive_message_group_id_ordering"),
                _documented(_GUIDE + "FIFO-queues-understanding-logic.html"),
            ),
            ("reverse-batch",),
        ),
        Promise(
            "SND-10",
            _ORDER,
            "Sequence numbers of a group rise with every send.",
            (_old("sqs/test_sqs.py::test_fifo_sequence_number_increases"), _documented(_API + "API_SendMessage.html")),
            ("freeze-sequence-numbers",),
        ),
        # Visibility.
        Promise(
            "RCV-17",
            _VISIBILITY,
            "A consumer that overruns its visibility timeout is not fenced: a second consumer gets the same message while the first still works on it.",
            (
                _old("sqs/test_sqs.py::test_fifo_messages_in_order_after_timeout"),
                _documented(_GUIDE + "FIFO-queues-exactly-once-processing.html"),
            ),
            ("stretch-visibility",),
        ),
        Promise(
            "VIS-01",
            _VISIBILITY,
            "Deleting with a handle whose visibility timeout has ended fails, and the message stays.",
            (_recorded("sqs/test_sqs.py::test_fifo_delete_after_visibility_timeout", "2025-03-28"),),
            ("hide-errors",),
        ),
        Promise(
            "VIS-14",
            _VISIBILITY,
            "Every receive adds one to ApproximateReceiveCount; the time of the first receive stays.",
            (_recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),),
            ("freeze-receive-count",),
        ),
        # Sending.
        Promise(
            "SND-01",
            _SEND,
            "A send without a deduplication id to a queue without content-based deduplication is refused.",
            (_recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
            ("hide-errors",),
        ),
        Promise(
            "SND-02",
            _SEND,
            "A send without a message group id is refused.",
            (_recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
            ("hide-errors",),
        ),
        Promise(
            "SNS-09",
            _SEND,
            "A publish to a FIFO topic without a message group id is refused.",
            (_recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),),
            ("hide-errors",),
        ),
        # Purge.
        Promise(
            "PUR-02",
            _PURGE,
            "A purge removes what waits and what is in flight.",
            (_old("sqs/test_sqs.py::test_purge_queue_deletes_inflight_messages"),),
            ("ignore-purge",),
        ),
        # Dead-letter queue.
        Promise(
            "DLQ-01",
            _DLQ,
            "After maxReceiveCount receives a message goes to the DLQ, with its message id and its group, and its group moves on.",
            (
                _recorded(
                    "sqs/test_sqs.py::test_dead_letter_queue_with_fifo_and_content_based_deduplication", "2024-05-21"
                ),
                _documented(_GUIDE + "sqs-dead-letter-queues.html"),
            ),
            ("change-message-ids", "withhold-dead-letters"),
        ),
        Promise(
            "DLQ-04",
            _DLQ,
            "In a FIFO DLQ the deduplication id is the original message id.",
            (_documented(_GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),),
            ("change-message-ids",),
        ),
        Promise(
            "SLU-04",
            _DLQ,
            "Of 20 messages worked off by 3 consumers, the 15th fails twice and everything behind it waits.",
            (
                _old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
                _documented(_GUIDE + "FIFO-queues-understanding-logic.html"),
            ),
            ("swap-bodies", "drop-messages"),
        ),
        # Move task.
        Promise(
            "MOV-20",
            _MOVE,
            "A move task takes the messages of a FIFO DLQ to another FIFO queue, in order.",
            (_documented(_GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),),
            ("ignore-move-task",),
        ),
        Promise(
            "MOV-17",
            _MOVE,
            "A move task takes a message from the FIFO DLQ back to its source, also inside the deduplication window.",
            (Evidence(Grade.OPEN, _GUIDE + "sqs-configure-dead-letter-queue-redrive.html", "2026-11-20"),),
            ("ignore-move-task",),
        ),
        Promise(
            "MOV-01",
            _MOVE,
            "A move task from a queue that is nobody's DLQ is refused.",
            (_recorded("sqs/test_sqs_move_task.py::test_source_needs_redrive_policy", "2024-04-30"),),
            ("hide-errors",),
        ),
        # Fan-out.
        Promise(
            "SLU-05",
            _FANOUT,
            "A message published to the topic arrives in every subscribed queue, once.",
            (
                _recorded("sns/test_sns.py::test_message_to_fifo_sqs", "2025-08-18"),
                _documented(_SNS_GUIDE + "sns-fifo-topics.html"),
            ),
            ("drop-messages", "deliver-twice"),
        ),
        Promise(
            "SNS-24",
            _FANOUT,
            "Every subscribed queue delivers the messages of a group in the order they were published.",
            (_recorded("sns/test_sns.py::test_message_to_fifo_sqs_ordering", "2025-02-19"),),
            ("reverse-batch",),
        ),
        Promise(
            "SNS-14",
            _FANOUT,
            "With raw delivery the body in the queue is the published one, and message attributes come along.",
            (_recorded("sns/test_sns.py::test_publish_fifo_messages_to_dlq", "2023-08-24"),),
            ("corrupt-bodies",),
        ),
        Promise(
            "SLU-06",
            _FANOUT,
            "A message published twice with one deduplication id inside the window arrives in every queue once.",
            (_recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
            ("forget-deduplication",),
        ),
        Promise(
            "SNS-18",
            _FANOUT,
            "A repeated publish returns the message id and sequence number of the first.",
            (_recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
            ("forget-deduplication",),
        ),
        Promise(
            "SNS-16",
            _FANOUT,
            "Content-based deduplication on the topic is enough: the queue needs none, and the same body arrives once.",
            (_recorded("sns/test_sns.py::test_publish_to_fifo_topic_to_sqs_queue_no_content_dedup", "2023-08-24"),),
            ("forget-deduplication",),
        ),
        Promise(
            "SNS-19",
            _FANOUT,
            "A topic without FifoThroughputScope deduplicates across groups: one id in two groups is delivered once.",
            (_recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),),
            ("forget-deduplication",),
        ),
        Promise(
            "SNS-39",
            _FANOUT,
            "A topic with FifoThroughputScope MessageGroup deduplicates inside a group: one id in two groups is delivered twice.",
            (_documented("https://docs.aws.amazon.com/sns/latest/api/API_SetTopicAttributes.html"),),
            ("swallow-repeats",),
        ),
        Promise(
            "STK-01",
            _DEPLOYMENT,
            "Every queue, DLQ and undelivered DLQ is live with exactly the attributes the declaration gives it.",
            (_documented(_API + "API_SetQueueAttributes.html"),),
            ("lose-redrive-policy", "lose-encryption", "shorten-retention"),
            Promiser.STACK,
        ),
        Promise(
            "STK-02",
            _DEPLOYMENT,
            "The topic is live as declared: FIFO, deduplicating inside a group, with the declared archive and key.",
            (_documented("https://docs.aws.amazon.com/sns/latest/api/API_SetTopicAttributes.html"),),
            ("widen-topic-scope",),
            Promiser.STACK,
        ),
        Promise(
            "STK-03",
            _DEPLOYMENT,
            "Each consumer's queue and nothing else is subscribed, raw, with its filter and a DLQ of its own for what SNS cannot deliver.",
            (_documented(_SNS_GUIDE + "sns-dead-letter-queues.html"),),
            ("hide-subscription", "share-undelivered-queue"),
            Promiser.STACK,
        ),
        Promise(
            "STK-04",
            _DEPLOYMENT,
            "The policies of queues and topics let in the topic for its queues and alarms for the operator topic, nobody from elsewhere, and nothing without TLS.",
            (_documented("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html"),),
            ("allow-plain-http", "allow-foreign-sources"),
            Promiser.STACK,
        ),
        Promise(
            "STK-05",
            _DEPLOYMENT,
            "Every alarm is live with the declared threshold, period and missing-data policy, and tells the operator topic.",
            (_documented("https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"),),
            ("mute-alarms", "raise-thresholds"),
            Promiser.STACK,
        ),
        Promise(
            "STK-06",
            _DEPLOYMENT,
            "A poison message in a consumer's queue ends in its DLQ, rings the alarm, and whoever subscribed to the operator topic hears of it.",
            (_documented(_GUIDE + "sqs-dead-letter-queues.html"),),
            ("withhold-dead-letters", "ignore-subscribe"),
            Promiser.STACK,
        ),
    )
}
