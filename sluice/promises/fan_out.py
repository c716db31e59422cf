"""What holds between a topic and its queues."""

from sluice.promises.promise import SNS_GUIDE, Promise, documented, recorded

_FANOUT = "Fan-out"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "SLU-05",
        _FANOUT,
        "A message published to the topic arrives in every subscribed queue, once.",
        (
            recorded("sns/test_sns.py::test_message_to_fifo_sqs", "2025-08-18"),
            documented(SNS_GUIDE + "sns-fifo-topics.html"),
        ),
        ("drop-messages", "deliver-twice"),
    ),
    Promise(
        "SNS-24",
        _FANOUT,
        "Every subscribed queue delivers the messages of a group in the order they were published.",
        (recorded("sns/test_sns.py::test_message_to_fifo_sqs_ordering", "2025-02-19"),),
        ("reverse-batch",),
    ),
    Promise(
        "SNS-14",
        _FANOUT,
        "With raw delivery the body in the queue is the published one, and message attributes come along.",
        (recorded("sns/test_sns.py::test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("corrupt-bodies",),
    ),
    Promise(
        "SLU-06",
        _FANOUT,
        "A message published twice with one deduplication id inside the window arrives in every queue once.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-18",
        _FANOUT,
        "A repeated publish returns the message id and sequence number of the first.",
        (recorded("sns/test_sns.py::test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-16",
        _FANOUT,
        "Content-based deduplication on the topic is enough: the queue needs none, and the same body arrives once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_to_sqs_queue_no_content_dedup", "2023-08-24"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-19",
        _FANOUT,
        "A topic without FifoThroughputScope deduplicates across groups: one id in two groups is delivered once.",
        (recorded("sns/test_sns.py::test_publish_to_fifo_topic_deduplication_on_topic_level", "2023-12-07"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-39",
        _FANOUT,
        "A topic with FifoThroughputScope MessageGroup deduplicates inside a group: one id in two groups is delivered twice.",
        (documented("https://docs.aws.amazon.com/sns/latest/api/API_SetTopicAttributes.html"),),
        ("swallow-repeats",),
    ),
)
