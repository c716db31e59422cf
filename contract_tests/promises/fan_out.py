"""What holds between a topic and its queues."""

from contract_tests.promises.promise import SNS_GUIDE, Promise, asserted, old, recorded, sns_api, sns_guide, unverified

_TESTS = "sns/test_sns.py::"

_FAN_OUT = {
    "SLU-05": Promise(
        "A message published to the topic arrives in every subscribed queue, once.",
        (recorded("sns/test_sns.py::test_message_to_fifo_sqs", "2025-08-18"), sns_guide("sns-fifo-topics")),
        ("drop-messages", "deliver-twice", "lose-second-subscription"),
    ),
    "SNS-24": Promise(
        "Every subscribed queue delivers the messages of a group in the order they were published.",
        (asserted("sns/test_sns.py::test_message_to_fifo_sqs_ordering", "2025-02-19"),),
        ("swap-late-bodies",),
    ),
    "SNS-14": Promise(
        "With raw delivery the body in the queue is the published one, and message attributes come along.",
        (recorded("sns/test_sns.py::test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("corrupt-bodies", "wrap-raw-deliveries", "drop-message-attributes"),
    ),
    "SLU-06": Promise(
        "A message published twice with one deduplication id inside the window arrives in every queue once.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    "SNS-18": Promise(
        "A repeated publish returns the message id and sequence number of the first.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    "SNS-16": Promise(
        "Content-based deduplication on the topic is enough: the queue needs none, and the same body arrives once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_to_sqs_queue_no_content_dedup", "2023-08-24"),),
        ("forget-deduplication",),
    ),
    "SNS-19": Promise(
        "A topic without FifoThroughputScope deduplicates across groups: one id in two groups is delivered once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),),
        ("forget-deduplication",),
    ),
    "SNS-113": Promise(
        "A topic without FifoThroughputScope answers one id in a second group with the ids of the first publish.",
        (
            recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),
            unverified("inferred: of a repeat in the same group the answer is recorded, of another group the delivery"),
        ),
        ("forget-deduplication",),
    ),
    "SNS-39": Promise(
        "A topic with FifoThroughputScope MessageGroup deduplicates inside a group: one id in two groups is delivered"
        " twice.",
        (sns_api("SetTopicAttributes"),),
        ("swallow-repeats",),
    ),
    "SNS-12": Promise(
        "A publish returns a message id and a sequence number, which rises inside a group and is not the queue's.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("freeze-sequence-numbers", "reuse-publish-ids"),
    ),
    "SNS-17": Promise(
        "Every copy in a queue has a message id of its own.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("reuse-publish-ids",),
    ),
    "SNS-45": Promise(
        "Without raw delivery the body is an envelope with the publish's message id and sequence number, and no"
        " signature.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("freeze-sequence-numbers", "unwrap-deliveries"),
    ),
    "SNS-85": Promise(
        "The envelope of a batch's entry has the message id and sequence number that the answer gives the entry.",
        (unverified("inferred from SNS-45, which was recorded for a single publish"),),
        ("misname-published-entries", "misnumber-published-entries"),
    ),
    "SNS-66": Promise(
        "In an envelope, message attributes are inside, each as type and value.",
        (recorded(_TESTS + "test_publish_sqs_from_sns", "2023-08-24"),),
        ("unwrap-deliveries",),
    ),
    "SNS-67": Promise(
        "A copy carries the group of the publish and its deduplication id: the one given, or the SHA-256 of the"
        " message.",
        (recorded(_TESTS + "test_message_to_fifo_sqs", "2025-08-18"),),
        ("relabel-messages", "regroup-messages"),
    ),
    "SNS-20": Promise(
        "A standard queue gets a message that was published twice only once, because the topic deduplicates.",
        (recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),),
        ("forget-deduplication",),
    ),
    "SNS-96": Promise(
        "A standard queue gets no message group id from a FIFO topic.",
        (recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),),
        ("stamp-groups",),
    ),
    "SNS-97": Promise(
        "A standard queue gets the message group id of a publish to a standard topic (comparison).",
        (recorded(_TESTS + "test_publish_message_group_id", "2025-08-18"), sns_api("Publish")),
        ("regroup-messages",),
    ),
    "SNS-95": Promise(
        "A publish with the same deduplication id is a new message after the window, and a repeat inside it does"
        " not extend it.",
        (sns_api("Publish"), sns_guide("fifo-message-dedup", read="2026-11-23")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    "SNS-129": Promise(
        "An explicit deduplication id overrides the content of a publish: one body with two ids is two messages.",
        (sns_api("Publish"),),
        ("swallow-bodies",),
    ),
    "SNS-130": Promise(
        "One deduplication id twice in a batch of publishes is one message, and both entries return its message id.",
        (sns_api("PublishBatch"), unverified("inferred from SNS-18 for the message id")),
        ("forget-deduplication",),
    ),
    "SNS-101": Promise(
        "A message of 1,048,576 bytes passes unchanged through a topic that allows it into a queue with raw delivery.",
        (sns_guide("large-message-payloads", read="2026-11-23"),),
        ("ignore-message-size", "corrupt-bodies"),
    ),
    "SNS-102": Promise(
        "The envelope counts towards the size of a copy: what does not fit into the queue with it goes to the DLQ of"
        " the subscription.",
        (unverified("by SND-14 and SNS-31; without the envelope the same message fits"),),
        ("unwrap-deliveries", "lose-undelivered"),
    ),
    "SNS-21": Promise(
        "A queue subscribed after a publish does not get a repeat of that publish.",
        (unverified(SNS_GUIDE + "fifo-message-dedup.html"), unverified("inferred from SNS-18")),
        ("forget-deduplication",),
    ),
    "SNS-37": Promise(
        "A FIFO topic may be published to by TargetArn.",
        (old(_TESTS + "test_publish_to_fifo_with_target_arn"),),
        ("ignore-target-arn",),
    ),
    "SNS-126": Promise(
        "With MessageStructure `json`, a queue gets the entry `sqs` if there is one, and else the default.",
        (recorded(_TESTS + "test_message_structure_json_to_sqs", "2023-08-24"),),
        ("ignore-message-structure",),
    ),
    "SNS-69": Promise(
        "A queue gets nothing that was published before it was subscribed.",
        (recorded(_TESTS + "test_publish_message_before_subscribe_topic", "2023-08-24"),),
        ("deliver-the-past",),
    ),
    "SNS-70": Promise(
        "A batch is delivered in the order of its entries, each with its own attributes and deduplication id.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("swap-batch-bodies", "drop-message-attributes"),
    ),
    "SNS-71": Promise(
        "A message with letters beyond ASCII arrives unchanged.",
        (recorded(_TESTS + "test_publish_unicode_chars", "2023-08-24"),),
        ("flatten-bodies",),
    ),
    "SNS-83": Promise(
        "With raw delivery a message of more than ten attributes is not delivered; in an envelope it is.",
        (sns_guide("sns-message-attributes", read="2026-11-21"),),
        ("strip-published-attributes",),
    ),
}

AREAS = {
    "Fan-out": _FAN_OUT,
}
