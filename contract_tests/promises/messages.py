"""What holds of one message: it is sent, deduplicated, received, purged."""

from contract_tests.promises.promise import (
    API,
    GUIDE,
    Promise,
    documented,
    old,
    peer,
    recorded,
    reported,
    unverified,
    verified,
)

_DEDUP = "Deduplication"
_SEND = "Sending"
_PURGE = "Purge"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "DED-01",
        _DEDUP,
        "A second send with the same deduplication id inside the window is accepted and not delivered, even after the"
        " first was received and deleted.",
        (recorded("sqs/test_sqs.py::test_fifo_deduplication_arrives_once_after_delete", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-08",
        _DEDUP,
        "After the window the same deduplication id is a new message; a repeat inside it does not extend it.",
        (
            recorded("sqs/test_sqs.py::test_deduplication_interval", "2024-05-29"),
            documented(GUIDE + "using-messagededuplicationid-property.html"),
        ),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "RCV-05",
        _DEDUP,
        "With content-based deduplication the deduplication id is the SHA-256 of the body, and the same body is one"
        " message.",
        (
            recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),
            documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),
        ),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-10",
        _DEDUP,
        "Content-based deduplication looks at the body only: other attributes do not make another message.",
        (documented(API + "API_SendMessage.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-11",
        _DEDUP,
        "An explicit deduplication id overrides the content: one body with two ids is two messages.",
        (documented(API + "API_SendMessage.html"),),
        ("swallow-bodies",),
    ),
    Promise(
        "SLU-02",
        _DEDUP,
        "With DeduplicationScope `queue`, one deduplication id in two groups is one message.",
        (documented(API + "API_CreateQueue.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-04",
        _DEDUP,
        "With DeduplicationScope `messageGroup`, one deduplication id in two groups is two messages, and in one group"
        " one.",
        (recorded("sqs/test_sqs.py::test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "SLU-03",
        _DEDUP,
        "With DeduplicationScope `messageGroup`, sends to groups A, B and A again with one id make two messages.",
        (recorded("sqs/test_sqs.py::test_fifo_high_throughput_ordering", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-09",
        _DEDUP,
        "A repeated send returns the message id of the first, and the first body is delivered.",
        (documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-14",
        _DEDUP,
        "Purging a queue forgets its deduplication ids.",
        (old("sqs/test_sqs.py::test_purge_queue_clears_fifo_deduplication_cache"),),
        ("swallow-repeats",),
    ),
    Promise(
        "DED-05",
        _DEDUP,
        "DeduplicationScope `messageGroup` works with the throughput limit left at `perQueue`.",
        (recorded("sqs/test_sqs.py::test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("forget-attributes", "swallow-repeats"),
    ),
    Promise(
        "DED-06",
        _DEDUP,
        "A scope changed to `messageGroup` after creation is shown; the queue goes on deduplicating across groups.",
        (recorded("sqs/test_sqs.py::test_fifo_change_to_high_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "forget-deduplication"),
    ),
    Promise(
        "DED-07",
        _DEDUP,
        "A scope changed to `queue` after creation is shown; the queue goes on deduplicating inside groups.",
        (recorded("sqs/test_sqs.py::test_fifo_change_to_regular_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "swallow-repeats"),
    ),
    Promise(
        "DED-12",
        _DEDUP,
        "An explicit deduplication id equal to the SHA-256 of a sent body makes a repeat.",
        (
            documented(API + "API_SendMessage.html"),
            unverified(
                "moto tests/test_sqs/test_sqs.py::test_fifo_queue_send_deduplicationid_same_as_sha256_of_old_message"
            ),
        ),
        ("salt-deduplication-ids",),
    ),
    Promise(
        "DED-13",
        _DEDUP,
        "The deduplication window outlasts the move of a message to the DLQ.",
        (
            documented(API + "API_SendMessage.html"),
            unverified("softwaremill/elasticmq FifoDeduplicationTests"),
        ),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-15",
        _DEDUP,
        "A repeat of a deleted message is given the message id of the deleted one.",
        (documented(API + "API_SendMessage.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-16",
        _DEDUP,
        "A dead letter sent again by hand inside the window needs a fresh deduplication id.",
        (
            reported("https://github.com/garryyao/replay-aws-dlq", "2026-11-20"),
            documented(GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),
        ),
        ("forget-deduplication", "swallow-bodies"),
    ),
    Promise(
        "SLU-45",
        _DEDUP,
        "A repeated send returns the sequence number of the first.",
        (unverified("softwaremill/elasticmq FifoDeduplicationTests, and by SNS-18"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SND-01",
        _SEND,
        "A send without a deduplication id to a queue without content-based deduplication is refused.",
        (recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-02",
        _SEND,
        "A send without a message group id is refused.",
        (recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SNS-09",
        _SEND,
        "A publish to a FIFO topic without a message group id is refused.",
        (recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-03",
        _SEND,
        "A deduplication id that is empty, too long or has a space is refused.",
        (recorded("sqs/test_sqs.py::test_message_deduplication_id_invalid", "2025-07-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-04",
        _SEND,
        "A deduplication id of 128 letters, digits and punctuation marks is accepted.",
        (recorded("sqs/test_sqs.py::test_message_deduplication_id_success", "2025-07-30"),),
        ("shorten-ids",),
    ),
    Promise(
        "SND-05",
        _SEND,
        "A message group id that is empty, too long or has a space is refused.",
        (
            recorded(
                "sqs/test_sqs.py::test_send_message_to_standard_queue_with_invalid_message_group_id", "2025-07-30"
            ),
            recorded("sqs/test_sqs.py::test_message_group_id_too_long", "2024-04-30"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-06",
        _SEND,
        "A message of a FIFO queue cannot have a delay of its own.",
        (
            recorded("sqs/test_sqs.py::test_fifo_queue_send_message_with_delay_seconds_fails", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_send_message_delay_seconds_validation"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-09",
        _SEND,
        "A changed delay of a FIFO queue holds for messages already sent.",
        (
            documented(GUIDE + "sqs-delay-queues.html"),
            documented(API + "API_SetQueueAttributes.html"),
        ),
        ("ignore-attribute-changes", "forget-attributes"),
    ),
    Promise(
        "SND-11",
        _SEND,
        "Message id, group, deduplication id and sequence number are the same at every receive.",
        (recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),),
        ("change-message-ids", "renumber-messages"),
    ),
    Promise(
        "SND-12",
        _SEND,
        "An empty body is refused.",
        (recorded("sqs/test_sqs.py::test_send_empty_message", "2025-09-22"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-14",
        _SEND,
        "A body longer than the queue's MaximumMessageSize is refused.",
        (recorded("sqs/test_sqs.py::test_send_message_with_updated_maximum_message_size", "2024-04-30"),),
        ("hide-errors", "blur-errors", "forget-attributes"),
    ),
    Promise(
        "SND-15",
        _SEND,
        "A body with a character that XML does not allow is refused; tab, line feed, carriage return and the ends of"
        " the allowed ranges arrive unchanged.",
        (
            old("sqs/test_sqs.py::test_send_message_with_invalid_payload_characters"),
            documented(API + "API_SendMessage.html"),
        ),
        ("hide-errors", "corrupt-bodies"),
    ),
    Promise(
        "SND-16",
        _SEND,
        "A message attribute of type String needs a value.",
        (recorded("sqs/test_sqs.py::test_send_message_with_empty_string_attribute", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SND-17",
        _SEND,
        "A message has at most ten attributes.",
        (
            documented(GUIDE + "sqs-message-metadata.html"),
            unverified("Inqnuam/local-aws-sqs test"),
        ),
        ("hide-errors", "drop-message-attributes"),
    ),
    Promise(
        "SND-18",
        _SEND,
        "The only system attribute a sender may set is AWSTraceHeader.",
        (
            peer("commit 3b6c1da"),
            documented(API + "API_SendMessage.html"),
        ),
        ("hide-errors", "blur-errors", "lose-trace"),
    ),
    Promise(
        "SLU-34",
        _SEND,
        "The trace header of a send arrives as a system attribute.",
        (
            documented(API + "API_SendMessage.html"),
            peer("commit 3b6c1da"),
        ),
        ("lose-trace",),
    ),
    Promise(
        "SLU-35",
        _SEND,
        "Send and receive state the MD5 of the body and of the message attributes.",
        (
            documented(API + "API_SendMessage.html"),
            documented(API + "API_ReceiveMessage.html"),
        ),
        ("blank-checksums",),
    ),
    Promise(
        "SND-21",
        _SEND,
        "A send whose answer was lost can be repeated with its deduplication id: one message comes.",
        (
            documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),
            documented(GUIDE + "using-messagededuplicationid-property.html"),
        ),
        ("forget-deduplication",),
    ),
    Promise(
        "SLU-40",
        _SEND,
        "Message attributes of every type arrive as they were sent.",
        (documented(GUIDE + "sqs-message-metadata.html"),),
        ("drop-message-attributes",),
    ),
    Promise(
        "SLU-41",
        _SEND,
        "Names of message attributes that AWS reserves are refused.",
        (documented(GUIDE + "sqs-message-metadata.html"),),
        ("hide-errors",),
    ),
    Promise(
        "PUR-02",
        _PURGE,
        "A purge removes what waits and what is in flight.",
        (old("sqs/test_sqs.py::test_purge_queue_deletes_inflight_messages"),),
        ("ignore-purge",),
    ),
    Promise(
        "PUR-01",
        _PURGE,
        "A second purge of a queue within 60 seconds is refused.",
        (recorded("sqs/test_sqs.py::test_successive_purge_calls_fail", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "PUR-05",
        _PURGE,
        "A purge releases the group of a message in flight.",
        (unverified("by PUR-02 and DED-14"),),
        ("ignore-purge",),
    ),
)
