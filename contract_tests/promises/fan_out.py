"""What holds between a topic and its queues."""

from contract_tests.promises.promise import (
    SNS_GUIDE,
    Promise,
    area,
    asserted,
    old,
    recorded,
    sns_api,
    sns_guide,
    unverified,
)

_TESTS = "sns/test_sns.py::"

_FAN_OUT = area(
    "Fan-out",
    Promise(
        "SLU-05",
        "A message published to the topic arrives in every subscribed queue, once.",
        (recorded("sns/test_sns.py::test_message_to_fifo_sqs", "2025-08-18"), sns_guide("sns-fifo-topics")),
        ("drop-messages", "deliver-twice", "lose-second-subscription"),
    ),
    Promise(
        "SNS-24",
        "Every subscribed queue delivers the messages of a group in the order they were published.",
        (asserted("sns/test_sns.py::test_message_to_fifo_sqs_ordering", "2025-02-19"),),
        ("swap-late-bodies",),
    ),
    Promise(
        "SNS-14",
        "With raw delivery the body in the queue is the published one, and message attributes come along.",
        (recorded("sns/test_sns.py::test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("corrupt-bodies", "wrap-raw-deliveries", "drop-message-attributes"),
    ),
    Promise(
        "SLU-06",
        "A message published twice with one deduplication id inside the window arrives in every queue once.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-18",
        "A repeated publish returns the message id and sequence number of the first.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-16",
        "Content-based deduplication on the topic is enough: the queue needs none, and the same body arrives once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_to_sqs_queue_no_content_dedup", "2023-08-24"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-19",
        "A topic without FifoThroughputScope deduplicates across groups: one id in two groups is delivered once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-113",
        "A topic without FifoThroughputScope answers one id in a second group with the ids of the first publish.",
        (
            recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),
            unverified("inferred: of a repeat in the same group the answer is recorded, of another group the delivery"),
        ),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-39",
        "A topic with FifoThroughputScope MessageGroup deduplicates inside a group: one id in two groups is delivered"
        " twice.",
        (sns_api("SetTopicAttributes"),),
        ("swallow-repeats",),
    ),
    Promise(
        "SNS-12",
        "A publish returns a message id and a sequence number, which rises inside a group and is not the queue's.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("freeze-sequence-numbers", "reuse-publish-ids"),
    ),
    Promise(
        "SNS-17",
        "Every copy in a queue has a message id of its own.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("reuse-publish-ids",),
    ),
    Promise(
        "SNS-45",
        "Without raw delivery the body is an envelope with the publish's message id and sequence number, and no"
        " signature.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("freeze-sequence-numbers", "unwrap-deliveries"),
    ),
    Promise(
        "SNS-85",
        "The envelope of a batch's entry has the message id and sequence number that the answer gives the entry.",
        (unverified("inferred from SNS-45, which was recorded for a single publish"),),
        ("misname-published-entries", "misnumber-published-entries"),
    ),
    Promise(
        "SNS-66",
        "In an envelope, message attributes are inside, each as type and value.",
        (recorded(_TESTS + "test_publish_sqs_from_sns", "2023-08-24"),),
        ("unwrap-deliveries",),
    ),
    Promise(
        "SNS-67",
        "A copy carries the group of the publish and its deduplication id: the one given, or the SHA-256 of the"
        " message.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("relabel-messages", "regroup-messages"),
    ),
    Promise(
        "SNS-20",
        "A standard queue gets a message that was published twice only once, because the topic deduplicates.",
        (recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-96",
        "A standard queue gets no message group id from a FIFO topic.",
        (recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),),
        ("stamp-groups",),
    ),
    Promise(
        "SNS-97",
        "A standard queue gets the message group id of a publish to a standard topic (comparison).",
        (recorded(_TESTS + "test_publish_message_group_id", "2025-08-18"), sns_api("Publish")),
        ("regroup-messages",),
    ),
    Promise(
        "SNS-95",
        "A publish with the same deduplication id is a new message after the window, and a repeat inside it does"
        " not extend it.",
        (sns_api("Publish"), sns_guide("fifo-message-dedup", read="2026-11-23")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "SNS-129",
        "An explicit deduplication id overrides the content of a publish: one body with two ids is two messages.",
        (sns_api("Publish"),),
        ("swallow-bodies",),
    ),
    Promise(
        "SNS-130",
        "One deduplication id twice in a batch of publishes is one message, and both entries return its message id.",
        (sns_api("PublishBatch"), unverified("inferred from SNS-18 for the message id")),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-101",
        "A message of 1,048,576 bytes passes unchanged through a topic that allows it into a queue with raw delivery.",
        (sns_guide("large-message-payloads", read="2026-11-23"),),
        ("ignore-message-size", "corrupt-bodies"),
    ),
    Promise(
        "SNS-102",
        "The envelope counts towards the size of a copy: what does not fit into the queue with it goes to the DLQ of"
        " the subscription.",
        (unverified("by SND-14 and SNS-31; without the envelope the same message fits"),),
        ("unwrap-deliveries", "lose-undelivered"),
    ),
    Promise(
        "SNS-21",
        "A queue subscribed after a publish does not get a repeat of that publish.",
        (unverified(SNS_GUIDE + "fifo-message-dedup.html"), unverified("inferred from SNS-18")),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-37",
        "A FIFO topic may be published to by TargetArn.",
        (old(_TESTS + "test_publish_to_fifo_with_target_arn"),),
        ("ignore-target-arn",),
    ),
    Promise(
        "SNS-126",
        "With MessageStructure `json`, a queue gets the entry `sqs` if there is one, and else the default.",
        (recorded(_TESTS + "test_message_structure_json_to_sqs", "2023-08-24"),),
        ("ignore-message-structure",),
    ),
    Promise(
        "SNS-69",
        "A queue gets nothing that was published before it was subscribed.",
        (recorded(_TESTS + "test_publish_message_before_subscribe_topic", "2023-08-24"),),
        ("deliver-the-past",),
    ),
    Promise(
        "SNS-70",
        "A batch is delivered in the order of its entries, each with its own attributes and deduplication id.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("swap-batch-bodies", "drop-message-attributes"),
    ),
    Promise(
        "SNS-71",
        "A message with letters beyond ASCII arrives unchanged.",
        (recorded(_TESTS + "test_publish_unicode_chars", "2023-08-24"),),
        ("flatten-bodies",),
    ),
    Promise(
        "SNS-83",
        "With raw delivery a message of more than ten attributes is not delivered; in an envelope it is.",
        (sns_guide("sns-message-attributes", read="2026-11-21"),),
        ("strip-published-attributes",),
    ),
)

PROMISES = _FAN_OUT
